"""An image seen through a classifier: what each patch of it has to do with the answer.

A classifier pools its positions: the mean of all, one of them, or what a learned query weighs highest (the
site `pool`). So where a head looks for the answer is what the positions take from each patch, weighted as
they are pooled. What a patch accounts for is found by integrated gradients (causal.py): on the way from a
picture that is its mean colour everywhere to the picture as it is, the logit of the label rises by what the
patches bring.

Letters: H heads, T patches, P numbers in a patch, S pixels a side, K channels.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.core.errors import UsageError
from glassformer.data.patches import join
from glassformer.inspection.causal import integrated
from glassformer.inspection.text_trace import TextTrace
from glassformer.inspection.trace import stack_of


def picture(look: TextTrace, output: int) -> dict[str, Any]:
    """Pixels and patches of an image, for a report; `output` is the label that patches account for."""
    if look.geometry is None:
        raise UsageError("this is a look at a text: it has no picture")
    pixels = join(look.trace.inputs[0][0].cpu().numpy(), look.geometry)  # (S, S, K)
    section: dict[str, Any] = {
        "size": look.geometry.size,
        "patch": look.geometry.patch,
        "channels": look.geometry.channels,
        "pixels": np.rint(255 * pixels.clip(0, 1)).astype(int).tolist(),
        "pool": look["pool"][0].float().tolist(),
        "attribution": patch_attribution(look, output),
    }
    if look.is_transformer:
        layers = range(len(stack_of(look.trace, look.part).blocks))
        section["attention"] = [pooled_attention(look, layer).tolist() for layer in layers]
    return section


def pooled_attention(look: TextTrace, layer: int) -> Tensor:
    """What the answer takes from each patch, by head: (H, T), a mean of the rows of its map."""
    return torch.einsum("t,hts->hs", look["pool"][0].float(), look.pattern(layer).float())


def patch_attribution(look: TextTrace, output: int) -> dict[str, Any]:
    """What each patch accounts for in the logit of a label, above that of a picture with nothing on it.

    They sum to `logit` − `nothing`, but for `gap`, which is what the integral misses.
    """
    patches = look.trace.inputs[0]  # (1, T, P)
    whole = integrated(
        look.trace.model,
        patches,
        lambda logits: logits[:, output],
        baseline=_without_anything(patches, look.geometry.channels if look.geometry else 1),
        edits=look.trace.edits,
    )
    return {
        "output": look.name(output),
        "logit": whole.value,
        "nothing": whole.baseline,
        "patches": whole.attributions.tolist(),
        "gap": whole.gap,
    }


def _without_anything(patches: Tensor, channels: int) -> Tensor:
    """The same picture in its mean colour everywhere, (1, T, P)."""
    pixels = patches.unflatten(-1, (-1, channels))
    return pixels.mean(dim=(1, 2), keepdim=True).expand_as(pixels).flatten(-2)
