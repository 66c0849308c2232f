"""What a training would cost, from formulas alone.

    plan.py     the plan: what it costs on which layout, and which one to take
    recipe.py   a plan by name: of a recipe, of a known shape, of settings
    count.py    parameters, matrices and operations of a transformer
    memory.py   the memory of one device while it trains, by part
    time.py     the time of one step on one device
    fused.py    both, for the step of own kernels on a GPU
    devices.py  what devices can do
    show.py     a plan in words and columns

PyTorch is needed only to measure this machine.
"""
