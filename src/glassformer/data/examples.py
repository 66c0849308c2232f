"""Examples: inputs with the answers to learn, sorted into train, validation and test.

    task        input                      output
    classify    a text, or an image's      the name of its label
                patches (an array)
    tag         words                      one tag for each
    translate   a sentence                 the same in the other language

Unlike text (sources.py) they are read into memory: labelled data is small. Duplicates of an input fall into
one split, so that nothing of the test has been seen in training.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glassformer.core.errors import DataError
from glassformer.data.patches import Geometry
from glassformer.data.sources import SPLITS
from glassformer.data.splits import draw, split_of

Example = tuple[Any, Any]  # input, output
FEW_INPUTS = 8  # different ones, of which none can be spared
# What the files or folders of splits may be called.
SPLIT_NAMES = {"train": ("train",), "valid": ("valid", "val", "dev", "validation"), "test": ("test",)}


@dataclass
class Examples:
    """Named examples, their splits, and what is known about them."""

    name: str
    splits: dict[str, list[Example]]
    rule: str  # how the splits were made, in words
    warnings: list[str] = field(default_factory=list)
    path: Path | None = None  # where they lie, if they are the user's own
    geometry: Geometry | None = None  # of images
    names: dict[str, list[str]] = field(default_factory=dict)  # by split, where each is a file of its own
    digests: dict[str, list[str]] = field(default_factory=dict)  # of these files, in the same order
    notes: list[str] = field(default_factory=list)  # what was assumed about them, for a person

    @property
    def fingerprint(self) -> str:
        """Of the examples, their answers and splits; of files that had to be unpacked, as they lie there."""
        hasher = hashlib.sha256()
        for split, examples in self.splits.items():
            files = self.digests.get(split)
            for i, (inputs, answer) in enumerate(examples):
                if files is not None:
                    encoded = files[i].encode()
                elif hasattr(inputs, "tobytes"):
                    encoded = inputs.tobytes()
                else:
                    encoded = repr(inputs).encode(errors="replace")
                hasher.update(split.encode() + encoded + repr(answer).encode(errors="replace"))
        return hasher.hexdigest()

    def whole(self) -> "Examples":
        """The same examples undivided, as one split named `all`."""
        everything = [e for split in SPLITS for e in self.splits.get(split, [])]
        names, digests = (
            [entry for split in SPLITS for entry in entries.get(split, [])]
            for entries in (self.names, self.digests)
        )
        return Examples(
            self.name,
            {"all": everything},
            "undivided",
            path=self.path,
            geometry=self.geometry,
            names={"all": names} if names else {},
            digests={"all": digests} if digests else {},
        )

    def require(self, split: str, least: int = 1) -> list[Example]:
        """A split that is there and large enough, or a message that says what is."""
        examples = self.splits.get(split)
        if not examples:
            present = ", ".join(f"{len(e)} for {s}" for s, e in self.splits.items() if e)
            others = f", only {present}" if present else ""
            needed = f"; at least {least} are needed" if least > 1 else ""
            raise DataError(f"{self.name} has no examples for {split}{others}{needed}.")
        if len(examples) < least:
            raise DataError(
                f"{self.name}: its {split} split holds {len(examples)} examples, at least {least} are needed."
            )
        return examples


def divide_examples(
    examples: Iterable[Example], valid: float, test: float, key: Callable[[Example], str] | None = None
) -> tuple[dict[str, list[Example]], str]:
    """Splits for examples that come without, by a hash of the input (or of what `key` says)."""
    splits: dict[str, list[Example]] = {s: [] for s in SPLITS}
    for example in examples:
        splits[split_of((key or _input_key)(example), valid, test)].append(example)
    if not splits["valid"]:  # of few examples a hash may choose none
        splits |= _some_held_out(splits["train"], key or _input_key, valid)
    return splits, f"by a hash of the input, {100 * valid:.3g} % valid, {100 * test:.3g} % test"


def _input_key(example: Example) -> str:
    return repr(example[0])


def _some_held_out(
    examples: list[Example], key: Callable[[Example], str], valid: float
) -> dict[str, list[Example]]:
    """Training and validation of examples too few for a share: the inputs that are drawn first, all but a few
    of which must remain.
    """
    groups = sorted(
        {key(e) for e in examples},
        key=lambda name: draw(hashlib.sha256(name.encode(errors="replace")).digest()),
    )
    count = max(1, round(valid * len(groups))) if len(groups) > FEW_INPUTS else 0
    chosen = set(groups[:count])
    return {
        "train": [e for e in examples if key(e) not in chosen],
        "valid": [e for e in examples if key(e) in chosen],
    }


def label_names(examples: Iterable[Example]) -> list[str]:
    """All labels or tags that occur, sorted; numbers by their value."""
    names: set[str] = set()
    for _, answer in examples:
        names |= {answer} if isinstance(answer, str) else set(answer)
    return sorted(names, key=lambda s: (0, int(s), s) if s.isdecimal() else (1, 0, s))
