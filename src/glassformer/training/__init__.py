"""Training: one loop for every task and every model.

    loop.py      read this first: step, evaluate, save, until it is done
    step.py      one update of a model;  update.py its end: from gradients to new weights
    optim.py     the optimizers;  adamw.py one of them, ready at once
    schedule.py  learning rate and batch as functions of the step
    pace.py      how many steps fit into the time there is
    reader.py    batches made ahead, by one thread
    compile.py   whether compiling a model pays, and the model as it is then called
    hooks.py     what the loop asks of the world around it: to measure, to sample, to show
    signals.py   Ctrl-C and its kin

    checkpoint/  all that a trajectory depends on, saved and read back
    device/      a step as one piece of work for a GPU
    parallel/    the same training by several processes

    log.py       the record of a run;  plot.py its curve
    display.py   what a person sees meanwhile
    diagnose.py  what broke, in words
    probe.py     a batch that fits into memory
    timing.py    how long a step takes

Nothing here knows a task: what is measured and sampled on the way comes in as hooks.
"""
