"""What everything may use.

    errors.py   the exceptions that a user can meet
    wording.py  what a message tells a user to do, in the words of the command line or of Python
    files.py    the one way to files: written whole and never through a link, read within bounds
    blocks.py   large files checked block by block, each before its first use
    strict_json.py  JSON as every reader takes it
    lock.py     one process in a folder at a time
    terminal.py what is shown on a terminal, and what when it goes away
    status.py   what goes on while there is nothing else to say
    drawing.py  a picture and its caption;  notebook.py a table in a notebook
    compiled.py loops that numba compiles;  lanes/ what those over numbers are made of
    triton_kernels.py  whether kernels for a GPU can be used, and why not;  recording.py CUDA graphs
    cores.py    how many cores there are for us
    device.py   where and how the arithmetic is done;  shapes.py models without numbers
    process.py  what a process that computes for long sets up once
    waiting.py  how its threads wait for each other, as the machine is quiet or busy

Nothing here knows of anything else in the project.
"""
