"""The fast step of a generation on a GPU: the twin of the one forward pass, as a few kernels in a CUDA graph.

    fitting.py   which models it can compute, and whether there can be kernels here
    weights.py   a model's weights as the kernels read them: float32 in place, or bfloat16
    asked.py     what a step is asked, in one block at a fixed address
    walk.py      the kernels of a step, one after the other
    graphs.py    the same as CUDA graphs, one for each number of rows
    choose.py    choices from scores, as sampling.py makes them
    ahead.py     a step that was begun before it was asked for
    step.py      `GraphStep`, which the engine takes like any other step
    kernels/     the kernels, written in Triton; only files there import it

Scores are those of the open pass up to rounding. A text's scores are the same to the last bit alone, beside
any others, in any row, token by token and in one piece. On a CPU the kernels run in Triton's interpreter,
without graphs: that is how they are tested where there is no GPU.
"""

from glassformer.generation.gpu.fitting import fits

__all__ = ["fits"]
