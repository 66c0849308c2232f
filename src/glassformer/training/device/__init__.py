"""A step that stays on the device: no number of it is waited for while it runs.

    fitting.py    which trainings it is for, and why not others
    passes.py     forward and backward: the fused twin's (models/gpu), or the model's own
    gradients.py  all gradients side by side in one vector
    adamw.py      AdamW on that vector, clipping included;  muon.py: Muon on it
    updates.py    check, clip and optimizers, without the host; what is no number moves nothing
    step.py       the step, one CUDA graph for each shape of its batches

Without a GPU the same goes on call by call, by formulas, which is how it is tested.
"""
