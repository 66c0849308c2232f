"""Fast steps of a generation on a GPU: CUDA graphs of the open pass, or of kernels that are its twin.

    graphs.py    recordings by name;  asked.py what a step is asked, in one block at a fixed address
    repeats.py   steps of the open pass that come again and again, for any transformer and without a compiler

    fitting.py   which models it can compute, and whether there can be kernels here
    weights.py   a model's weights as the kernels read them: float32 in place, or bfloat16
    walk.py      the kernels of a step, one after the other
    choose.py    choices from scores, as sampling.py makes them
    ahead.py     a step that was begun before it was asked for
    step.py      `GraphStep`, which the engine takes like any other step
    kernels/     the kernels, written in Triton; only files there import it

Scores of the kernels are those of the open pass up to rounding. A text's scores are the same to the last bit
alone, beside any others, in any row, token by token and in one piece. On a CPU the kernels run in Triton's
interpreter, without graphs: that is how they are tested where there is no GPU.
"""

from glassformer.generation.gpu.fitting import fits

__all__ = ["fits"]
