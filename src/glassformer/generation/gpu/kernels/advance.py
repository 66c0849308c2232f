"""From one step to the next without the host: the tokens that were chosen are read at the next positions.

It never lets the kernel behind it begin early: all of a step read what it writes before they wait.
"""

import triton
import triton.language as tl


@triton.jit
def advance_kernel(chosen, tokens, positions, ats, live, ROWS: tl.constexpr):
    """Rows that are not `live` belong to nobody and stay where they are. A choice that is not sure is read as
    token 0; nobody reads what comes of it.
    """
    row = tl.arange(0, ROWS)
    alive = tl.load(live + row)
    tl.store(tokens + row, tl.maximum(tl.load(chosen + row), 0) * alive)
    tl.store(positions + row, tl.load(positions + row) + alive)
    tl.store(ats + row, tl.load(ats + row) + alive)
