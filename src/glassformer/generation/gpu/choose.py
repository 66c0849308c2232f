"""Choices from scores on a GPU: the twin of `sampling.choose` for samplers that do not weigh.

kernels/draw.py draws; here are the settings that it reads, for each row of scores, and what is done where it
is not sure.

Letters: R rows, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glassformer.core.triton_kernels import begins_early, next_power_of_2
from glassformer.generation import sampling
from glassformer.generation.gpu.asked import Asked
from glassformer.generation.gpu.kernels import draw
from glassformer.generation.noise import seed_key
from glassformer.generation.rows import ROWS
from glassformer.generation.sampling import Sampler

keys_kernel: Any = draw.keys_kernel
settle_kernel: Any = draw.settle_kernel

LEAST_TILE, MOST_TILES = 256, 128  # tokens of a tile; tiles
LEAST_GROUP, MOST_GROUPS = 8, 2048  # tokens of a group; groups
BLOCK = 4096  # tokens of groups that are looked at together
FEW, BESIDE = 256, 32  # tokens of which each is compared with each; with how many together
WARPS = 8
SETTINGS: dict[str, tuple[torch.dtype, Sequence[int]]] = {
    "seed_keys": (torch.int64, (ROWS,)),
    "bys": (torch.float32, (ROWS,)),
    "greedy": (torch.int32, (ROWS,)),
    "top_ks": (torch.int32, (ROWS,)),
    "top_ps": (torch.float32, (ROWS,)),
    "min_ps": (torch.float32, (ROWS,)),
}


PLACES: dict[str, tuple[torch.dtype, Sequence[int]]] = {"ats": (torch.int64, (ROWS,))}  # in their texts
TOLD = 2  # draws that may wait to be read


class Drawing:
    """How rows are drawn: settings and places that a step is asked with, and the kernels' memory."""

    def __init__(self, asked: Asked, places: Asked, vocab: int, device: torch.device):
        self._asked, self._places, self._vocab = asked, places, vocab
        # PyTorch divides by a number on a CPU, and multiplies with its inverse on a GPU.
        self._multiplies = device.type == "cuda"
        self._tile = max(LEAST_TILE, next_power_of_2(-(-vocab // MOST_TILES)))
        self._tiles = -(-vocab // self._tile)
        self._group = min(self._tile, max(LEAST_GROUP, next_power_of_2(-(-vocab // MOST_GROUPS))))
        self._groups = -(-vocab // self._group)
        self._samplers: list[Sampler | None] = [None] * ROWS  # whose settings stand there
        self._keys = torch.empty(ROWS, vocab, device=device)
        self._tops, self._sums, self._best, self._second = (
            torch.empty(ROWS, self._tiles, device=device) for _ in range(4)
        )
        self._tokens = torch.empty(ROWS, self._tiles, dtype=torch.int32, device=device)
        self._group_tops = torch.empty(ROWS, self._groups, device=device)
        self._listed = torch.empty(ROWS, self._groups, dtype=torch.int32, device=device)
        self._candidates = torch.empty(ROWS, FEW, dtype=torch.int32, device=device)
        self._early = begins_early(device)
        self.unsure = 0  # rows so far for which sampling.py was asked
        self._device = device
        self._said = torch.empty(TOLD, ROWS, dtype=torch.int32, pin_memory=device.type == "cuda")
        self._done: list[torch.cuda.Event | None] = [None] * TOLD
        self._draws = 0
        asked.host["bys"][:] = 1.0

    def write(self, row: int, sampler: Sampler, position: int) -> None:
        """How a row is drawn, and at which position of its text."""
        host = self._asked.host
        if sampler is not self._samplers[row]:
            temperature = np.float32(1.0 if sampler.is_greedy else sampler.temperature)
            host["bys"][row] = np.float32(1.0) / temperature if self._multiplies else temperature
            host["greedy"][row] = sampler.is_greedy
            host["top_ks"][row] = self._vocab if sampler.top_k is None else min(sampler.top_k, self._vocab)
            host["top_ps"][row] = 1.0 if sampler.top_p is None else sampler.top_p
            host["min_ps"][row] = sampler.min_p or 0.0
            assert sampler.is_greedy or sampler.seed is not None, "a sampler that draws has a seed by now"
            host["seed_keys"][row] = 0 if sampler.is_greedy else seed_key(sampler.seed or 0)
            self._samplers[row] = sampler
        self._places.host["ats"][row] = position

    def launch(self, R: int, scores: Tensor, moves: bool = False) -> None:
        """Draw R rows of scores (R, V). If it `moves`, the places become those of the next step."""
        asked, places, V = self._asked.device, self._places.device, self._vocab
        tiles = self._tops, self._sums, self._best, self._second, self._tokens, self._group_tops
        sizes: dict[str, Any] = {
            "V": V,
            "TILES": self._tiles,
            "GROUPS": self._groups,
            "GROUP": self._group,
            "FEW": FEW,
            "MULTIPLIES": self._multiplies,
        }
        keys_kernel[(self._tiles, R)](
            scores,
            asked["seed_keys"],
            places["ats"],
            asked["bys"],
            asked["greedy"],
            asked["top_ks"],
            self._keys,
            *tiles,
            TILE=self._tile,
            **sizes,
            **self._early,
        )
        settle_kernel[(R,)](
            scores,
            asked["seed_keys"],
            places["ats"],
            asked["bys"],
            asked["greedy"],
            asked["top_ks"],
            asked["top_ps"],
            asked["min_ps"],
            self._keys,
            *tiles,
            self._listed,
            self._candidates,
            self._said,
            *((places[name] if moves else None) for name in ("tokens", "positions", "live")),
            ROWS=ROWS,
            TOLD=TOLD,
            BESIDE=BESIDE,
            BLOCK=max(BLOCK, self._group),
            num_warps=WARPS,
            **sizes,
            **self._early,
        )

    def tell(self) -> int:
        """The host may have what was chosen, when it is there; what to ask `read` for."""
        which = self._draws = (self._draws + 1) % TOLD
        if self._device.type == "cuda":
            done = self._done[which] = torch.cuda.Event()
            done.record(torch.cuda.current_stream(self._device))
        return which

    def read(
        self,
        draw: int,
        scores: Tensor | None,
        samplers: Sequence[Sampler],
        positions: Sequence[int],
        rows: Sequence[int],
    ) -> list[int] | None:
        """The tokens that were chosen for these rows, from scores (≥ R, V) if those still stand.

        None: it hangs on a rounding, and the scores that could settle it are no longer there.
        """
        done = self._done[draw]
        if done is not None:
            done.synchronize()
        said = self._said.tolist()
        chosen = [said[positions[row] % TOLD][row] for row in rows]
        unsure = [i for i, token in enumerate(chosen) if token < 0]
        if unsure:
            if scores is None:
                return None
            which = [rows[i] for i in unsure]
            again = [samplers[row] for row in which], [positions[row] for row in which]
            self.unsure += len(unsure)
            settled: list[int] = sampling.choose(scores[which], *again).tolist()
            for i, token in zip(unsure, settled, strict=True):
                chosen[i] = token
        return chosen


class Chooser:
    """Chooses from given scores."""

    def __init__(self, vocab: int, device: torch.device):
        self._asked, self._places = Asked(device, SETTINGS), Asked(device, PLACES)
        self.drawing = Drawing(self._asked, self._places, vocab, device)

    def choose(self, logits: Tensor, samplers: Sequence[Sampler], positions: Sequence[int]) -> list[int]:
        """The next token of each row of float32 scores (R, V), at these positions of their texts."""
        chosen: list[int] = []
        for first in range(0, len(logits), ROWS):
            some = slice(first, first + ROWS)
            scores = logits[some].contiguous()
            for row, (sampler, position) in enumerate(zip(samplers[some], positions[some], strict=True)):
                self.drawing.write(row, sampler, position)
            self._asked.bring()
            self._places.bring()
            self.drawing.launch(len(scores), scores)
            tokens = self.drawing.read(
                self.drawing.tell(), scores, samplers[some], positions[some], range(len(scores))
            )
            assert tokens is not None
            chosen += tokens
        return chosen
