"""The window into a forward pass.

Every model's `forward` takes a `tap`: a plain function `tap(site, x) -> x` that is shown each named value
on its way and returns what the computation goes on with. Returning `x` itself reads; returning something
else edits. The default, `off`, is the identity: a compiler that inlines it leaves nothing behind, so the
model that is looked into is the very model that trains fast.

Sites (a block's are prefixed with its number, as in `3.q`):

    embed       token embedding plus positions, the residual stream's start      (B, T, C)
    q k v       queries, keys and values as the scores use them                  (B, H, T, D)
    z           the heads' outputs before W_O                                    (B, H, T, D)
    attn_out    what attention writes                                            (B, T, C)
    resid_mid   the stream after attention                                       (B, T, C)
    mlp_hidden  the feed-forward net's hidden units after the activation         (B, T, M)
    mlp_out     what the feed-forward net writes                                 (B, T, C)
    resid       the stream after the block                                       (B, T, C)
    final       the stream after the last norm                                   (B, T, C)
    logits      one score per vocabulary entry                                   (B, T, V)

A translator's are under `encoder.` and `decoder.`; there a block also has `cross.q`, `cross.k`, `cross.v`,
`cross.z`, `cross.attn_out` and `resid_cross`, the stream after it. A head that pools has `pool` (B, T) and
`pooled` (B, C). Recurrent layers have `resid`, window models `mlp_hidden`.

`Record` below is the tap that reads. The one that edits is in inspection/edits.py: `zero("3.z", heads=2)`
switches head 2 of block 3 off, before W_O.
"""

from collections.abc import Callable

from torch import Tensor
from torch.compiler import is_compiling

Tap = Callable[[str, Tensor], Tensor]


def off(site: str, x: Tensor) -> Tensor:
    """The tap that does nothing."""
    return x


def inside(tap: Tap, part: int | str) -> Tap:
    """The same tap for a part of the model that knows its sites by their short names only."""
    if tap is off:
        return off
    return lambda site, x: tap(f"{part}.{site}", x)


class Record:
    """A tap that keeps the values of the named sites; `z` means that of every block, and no name all sites.

    A value that is a slice of a larger one is copied, so that what is kept is what was asked for.
    """

    def __init__(self, *sites: str):
        self.sites = sites
        self.shown: dict[str, tuple[int, ...]] = {}  # every site there was, and the shape of its value
        self.values: dict[str, Tensor] = {}

    def __call__(self, site: str, x: Tensor) -> Tensor:
        self.shown[site] = tuple(x.shape)
        if not self.sites or site in self.sites or site.rsplit(".", 1)[-1] in self.sites:
            self.values[site] = x if is_compiling() or _is_whole(x) else x.clone()
        return x


def _is_whole(x: Tensor) -> bool:
    return x.untyped_storage().nbytes() == x.numel() * x.element_size()
