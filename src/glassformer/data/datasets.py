"""From a SOURCE to data: `load_dataset` is the one way, whatever the source is.

    SOURCE                                     becomes
    a name in catalog.py                       that data set, downloaded or made here
    a file, a folder, a pattern, -             text (own_text.py), records (collection.py), tables
                                               (tables.py), images (image_folders.py)
    hf:NAME[/CONFIG][@SPLIT]                   a stream of Hugging Face's (hub.py)

A file of a published set that the user put there is trusted: when its checksum is another one it is used with
a warning, and the run records its fingerprint. A file or folder that is called like a data set comes first.
"""

import hashlib
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, overload

from glassformer.config.schema import TEXT_TASKS
from glassformer.core.errors import UsageError, closest
from glassformer.core.files import user_path
from glassformer.data.catalog import DATASETS, Generated, Published, refuse_missing
from glassformer.data.collection import Records, is_collection, open_records
from glassformer.data.columns import COLUMN_NAMES, TableWish
from glassformer.data.columns import NO_WISH as ANY_TABLE
from glassformer.data.download import local_file
from glassformer.data.examples import Example, Examples
from glassformer.data.image_folders import own_images
from glassformer.data.newlines import Newlines
from glassformer.data.own_text import OwnText, open_text
from glassformer.data.patches import NO_WISH, Geometry
from glassformer.data.sources import Corpus, Span, make_corpus
from glassformer.data.splits import Rule, by_content, character_start, divide
from glassformer.data.tables import is_labelled_table, own_examples, read_examples, split_files
from glassformer.data.text_files import text_digest

Split = Literal["auto"] | Rule  # what data.split can be


@overload
def load_dataset(
    name_or_path: str | Path,
    task: Literal["language", "masked"],
    *,
    target: str | Path | None = None,
    valid: float = 0.05,
    test: float = 0.05,
    field: str = "text",
    split: Split = "auto",
    newlines: Newlines = "normalise",
) -> Corpus: ...
@overload
def load_dataset(
    name_or_path: str | Path,
    task: Literal["classify", "tag", "translate"],
    *,
    target: str | Path | None = None,
    valid: float = 0.05,
    test: float = 0.05,
    field: str = "text",
    split: Split = "auto",
    newlines: Newlines = "normalise",
) -> Examples: ...
@overload
def load_dataset(
    name_or_path: str | Path,
    task: str | None = None,
    *,
    target: str | Path | None = None,
    valid: float = 0.05,
    test: float = 0.05,
    field: str = "text",
    split: Split = "auto",
    newlines: Newlines = "normalise",
) -> Corpus | Examples: ...
def load_dataset(
    name_or_path: str | Path,
    task: str | None = None,
    *,
    target: str | Path | None = None,
    valid: float = 0.05,
    test: float = 0.05,
    field: str = "text",
    split: Split = "auto",
    newlines: Newlines = "normalise",
) -> Corpus | Examples:
    """The data that a SOURCE stands for: a corpus of text, or examples with the answers to learn.

    name_or_path  the name of a data set (catalog.py), a file, a folder, a pattern such as notes/*.txt,
                  hf:NAME, or - for standard input
    task          language and masked give a Corpus; classify, tag and translate give Examples. None is what
                  the source has: a data set is for the task it was made for, a file with a `target` is
                  translated, a table of texts and labels is classified, anything else is text
    target        of a parallel text, the file with the other language, line by line the same
    valid, test   the shares that are held out where a source does not come with splits of its own
    field         where records (JSON lines, Parquet, hf:) have their text
    split         the rule by which text is divided (splits.py); auto: your own by content, what is made
                  here by name
    newlines      `normalise` makes \\n of the line ends of your own text (newlines.py), `keep` leaves them

    Text is not read yet, however much there is; examples are, since they are small. What is missing, is no
    text, or is for another task raises a DataError or UsageError that says what would do.
    """
    source, other = str(name_or_path), None if target is None else str(target)
    task = task or task_of(source, other)
    if task in TEXT_TASKS:
        return open_corpus(source, valid, test, field, split, newlines)
    if task not in COLUMN_NAMES:
        tasks = [*TEXT_TASKS, *COLUMN_NAMES]
        raise UsageError(f"there is no task '{task}'.{closest(task, tasks)} Tasks: {', '.join(tasks)}.")
    return open_examples(source, task, other, valid, test, table=TableWish(newlines=newlines))


def task_of(source: str, target: str | None = None) -> str:
    """What a SOURCE is for when nothing is said."""
    if Path(source).exists():
        if target:
            return "translate"
        return "classify" if is_labelled_table(user_path(source)) else "language"
    dataset = DATASETS.get(source)
    return dataset.task if dataset else "language"


def open_corpus(
    source: str,
    valid: float = 0.05,
    test: float = 0.05,
    field: str = "text",
    split: Split = "auto",
    newlines: Newlines = "normalise",
) -> Corpus:
    """The corpus that a SOURCE stands for: a path or pattern, `-`, hf:…, or the name of a data set.

    `field` is where records (JSON lines, Parquet) have their text, `split` the rule by which it is divided.
    """
    return open_corpora([source], valid, test, field, split, newlines)[0]


def open_corpora(
    sources: Sequence[str],
    valid: float,
    test: float,
    field: str,
    split: Split,
    newlines: Newlines = "normalise",
) -> list[Corpus]:
    """Several that are learned from together: what is the user's own among them is divided as one."""
    found = [_find_corpus(source, valid, test, field, split, newlines) for source in sources]
    own = [source for source in found if not isinstance(source, Corpus)]
    if split == "name":
        divided = iter([source.divided(source.original_division(valid, test), "name") for source in own])
    else:
        divisions = by_content([source.undivided for source in own], valid, test) if own else []
        pairs = zip(own, divisions, strict=True)
        divided = iter([source.divided(division, "content") for source, division in pairs])
    return [source if isinstance(source, Corpus) else next(divided) for source in found]


def _find_corpus(
    source: str, valid: float, test: float, field: str, split: Split, newlines: Newlines
) -> Corpus | OwnText | Records:
    """A data set with its splits; the user's own text before it has any."""
    dataset = _dataset_named(source)
    if dataset is not None and dataset.task != "language":
        raise UsageError(f"'{source}' holds examples, for the task {dataset.task}; this needs text.")
    if isinstance(dataset, Generated):
        return _generated_corpus(source, valid, test, "name" if split == "auto" else split)
    if isinstance(dataset, Published):
        return _published_corpus(source, dataset)
    refuse_missing(source)
    if is_collection(source):
        return open_records(source, field, newlines)
    return open_text(source, newlines)


def open_examples(
    source: str,
    task: str,
    target: str | None,
    valid: float,
    test: float,
    wish: Geometry = NO_WISH,
    table: TableWish = ANY_TABLE,
) -> Examples:
    """The examples that a SOURCE stands for: a path, or the name of a data set; `wish` is of images, `table`
    of tables.
    """
    examples = _find_examples(source, task, target, valid, test, wish, table)
    if not wish.allows(examples.geometry or NO_WISH):
        what = examples.geometry or "texts"
        raise UsageError(
            f"{source} holds {what}: leave out what data.image_size, patch_size and channels say otherwise, "
            "and an --init that was made for others"
        )
    return examples


def _find_examples(
    source: str, task: str, target: str | None, valid: float, test: float, wish: Geometry, table: TableWish
) -> Examples:
    dataset = _dataset_named(source)
    if dataset is not None and dataset.task != task:
        raise UsageError(f"the data set '{source}' is for the task {dataset.task}, not {task}.")
    if isinstance(dataset, Generated):
        return _generator(source).examples()
    if isinstance(dataset, Published):
        return _published_examples(source, dataset)
    refuse_missing(source, task)
    folder = user_path(source)
    if task == "classify" and folder.is_dir() and "train" not in split_files(folder):
        images = own_images(source, wish, valid, test)
        if images is not None:
            return images
    return own_examples(source, task, target, valid, test, table)


def marked_names() -> list[str]:
    """The data sets that bring marked sentences (inspection/marked.py)."""
    return [
        name for name, dataset in DATASETS.items() if isinstance(dataset, Generated) and dataset.relations
    ]


def marked_sentences(name: str) -> dict[str, list[str]]:
    """Those of a data set, by the name of the relation; none of them is in its text."""
    return _generator(name).relations()


def _dataset_named(source: str) -> Published | Generated | None:
    """The data set of that name, unless the user has a file or folder that is called so."""
    return None if Path(source).exists() else DATASETS.get(source)


def _generator(name: str) -> Any:
    """The module that makes a data set."""
    return importlib.import_module(f"glassformer.data.generated.{name}")


def _generated_corpus(name: str, valid: float, test: float, rule: Rule) -> Corpus:
    documents: list[tuple[str, str]] = _generator(name).documents()
    spans = [Span(title, data := text.encode(), 0, len(data)) for title, text in documents]
    splits, words = divide(spans, valid, test, rule)
    digests = {title: hashlib.sha256(text.encode()).hexdigest() for title, text in documents}
    corpus = make_corpus(name, splits, words, digests)
    corpus.split = rule
    return corpus


def _published_corpus(name: str, dataset: Published) -> Corpus:
    warnings: list[str] = []
    splits: dict[str, list[Span]] = {}
    digests: dict[str, str] = {}
    for split, file in dataset.files.items():
        path = local_file(name, dataset, file)
        digest = digests[file.name] = text_digest(path, str(path))
        if digest != file.sha256:
            problem = "differs from the published one" if file.sha256 else "is not published"
            warnings.append(f"{path}: its checksum {problem}; used as it is (sha256 {digest[:16]}…)")
        size = path.stat().st_size
        if split == "all":
            cut = character_start(Span(file.name, path, 0, size), int(size * (1 - dataset.valid)))
            splits = {"train": [Span(file.name, path, 0, cut)], "valid": [Span(file.name, path, cut, size)]}
        else:
            splits[split] = [Span(file.name, path, 0, size)]
    return make_corpus(name, splits, dataset.rule, digests, warnings)


def _published_examples(name: str, dataset: Published) -> Examples:
    paths = {key: local_file(name, dataset, file) for key, file in dataset.files.items()}
    warnings = [
        f"{path}: its checksum differs from the published one; used as it is"
        for key, path in paths.items()
        if text_digest(path, str(path)) != dataset.files[key].sha256
    ]
    splits: dict[str, list[Example]] = {}
    for key, path in paths.items():
        split, _, side = key.partition(" ")
        if split not in splits:
            other = next((p for k, p in paths.items() if k != key and k.startswith(f"{split} ")), None)
            splits[split] = read_examples(path, dataset.task, str(other) if side else None)
    return Examples(name, splits, dataset.rule, warnings)
