"""Several processes that train one model.

    world.py   who each process is, and the little they say to each other
    layout.py  how a model lies over them: copies or shards
    launch.py  start them on this machine, pass signals on, end them together
    watch.py   one that dies or hangs ends the rest

The model knows nothing of it.
"""
