"""The data sets that have a name, and the one way from a name or path to a corpus.

A named set is a file on this machine or is downloaded (download.py). A file the user put there is trusted:
when its checksum is another one it is used with a warning, and the run records its fingerprint.
"""

import hashlib
from pathlib import Path

from glassformer.core.errors import DataError, UsageError, closest
from glassformer.data import pydocs, repeats
from glassformer.data.collection import is_collection, open_collection
from glassformer.data.download import DataSet, File, local_file
from glassformer.data.examples import Examples
from glassformer.data.generated import GENERATED
from glassformer.data.hub import PREFIX
from glassformer.data.sources import Corpus, Span, character_start, divide, make_corpus, own_corpus
from glassformer.data.tables import own_examples, read_examples
from glassformer.data.text_files import text_digest

SST2 = "https://raw.githubusercontent.com/clairett/pytorch-sentiment-classification/master/data/SST2/"
MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"

DATASETS = {
    "shakespeare": DataSet(
        about="Tiny Shakespeare, 1.1 MB of plays",
        folder="tinyshakespeare",
        urls=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
        files={"all": File("input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")},
        checksum="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        valid=0.1,
        rule="the first 90 % train, the last 10 % valid; no test split",
    ),
    "wikitext-2": DataSet(
        about="WikiText-2, 2 million words of Wikipedia with rare words as <unk>",
        folder="wikitext-2",
        urls=(
            "https://wikitext.smerity.com/wikitext-2-v1.zip",
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-2-v1.zip",
        ),
        files={
            "train": File("train.txt", None, "wikitext-2/wiki.train.tokens"),
            "valid": File(
                "valid.txt",
                "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                "wikitext-2/wiki.valid.tokens",
            ),
            "test": File(
                "test.txt",
                "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
                "wikitext-2/wiki.test.tokens",
            ),
        },
        checksum="md5:542ccefacc6c27f945fb54453812b3cd",
        rule="as published: train, valid and test files",
    ),
    "sst2": DataSet(
        about="SST-2, 9,613 sentences of film reviews, negative (0) or positive (1)",
        folder="sst2",
        task="classify",
        urls=(),
        files={
            "train": File(
                "train.tsv",
                "ec192f833a64da08f475488a77b0d0b47db47acd0f458bd18433fc793b569920",
                urls=(SST2 + "train.tsv",),
            ),
            "valid": File(
                "dev.tsv",
                "eddea6b39e601dd4e7a672b53cc40fdf6019fa80522f351206c24340ca5d9359",
                urls=(SST2 + "dev.tsv",),
            ),
            "test": File(
                "test.tsv",
                "831169c7e2e429d6026e1bdbb542f33b636e3e596caad9602ebc953c205928b7",
                urls=(SST2 + "test.tsv",),
            ),
        },
        rule="as published: train, dev and test; whole sentences only",
    ),
    "multi30k": DataSet(
        about="Multi30k, 31,014 captions of photographs, English and German",
        folder="multi30k-en-de",
        task="translate",
        urls=(),
        files={
            "train en": File(
                "train.en",
                "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
                urls=(MULTI30K + "train.en.gz",),
            ),
            "train de": File(
                "train.de",
                "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
                urls=(MULTI30K + "train.de.gz",),
            ),
            "valid en": File(
                "val.en",
                "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
                urls=(MULTI30K + "val.en.gz",),
            ),
            "valid de": File(
                "val.de",
                "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
                urls=(MULTI30K + "val.de.gz",),
            ),
            "test en": File(
                "test_2016_flickr.en",
                "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
                urls=(MULTI30K + "test_2016_flickr.en.gz",),
            ),
            "test de": File(
                "test_2016_flickr.de",
                "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
                urls=(MULTI30K + "test_2016_flickr.de.gz",),
            ),
        },
        rule="as published: train, val and test_2016_flickr",
    ),
}

WRITTEN = {"pydocs": pydocs.documents, "repeats": repeats.documents}  # text that is made here
NAMES = [*WRITTEN, *DATASETS, *GENERATED]


def task_of(source: str, target: str | None = None) -> str:
    """What a SOURCE is for when nothing is said."""
    if Path(source).exists():
        return "translate" if target else "language"
    if source in DATASETS:
        return DATASETS[source].task
    return GENERATED[source][0] if source in GENERATED else "language"


def open_examples(source: str, task: str, target: str | None, valid: float, test: float) -> Examples:
    """The examples that a SOURCE stands for: a path, or the name of a data set."""
    known = {name: made_for for name, (made_for, _) in GENERATED.items()}
    known |= {name: dataset.task for name, dataset in DATASETS.items()} | dict.fromkeys(WRITTEN, "language")
    if source in known and not Path(source).exists():
        if known[source] != task:
            raise UsageError(f"the data set '{source}' is for the task {known[source]}, not {task}.")
        return GENERATED[source][1]() if source in GENERATED else _named_examples(source, task)
    if source == "-" or not Path(source).expanduser().exists():
        hint = closest(source, list(known))
        fitting = ", ".join(name for name, made_for in known.items() if made_for == task)
        raise DataError(
            f"there is no file, folder or data set '{source}' for the task {task}.{hint} "
            f"Data sets: {fitting}."
        )
    return own_examples(source, task, target, valid, test)


def _named_examples(name: str, task: str) -> Examples:
    dataset = DATASETS[name]
    paths = {key: local_file(name, dataset, file) for key, file in dataset.files.items()}
    warnings = [
        f"{path}: its checksum differs from the published one; used as it is"
        for key, path in paths.items()
        if text_digest(path, str(path)) != dataset.files[key].sha256
    ]
    splits = {}
    for key, path in paths.items():
        split, _, side = key.partition(" ")
        if split not in splits:
            other = next((p for k, p in paths.items() if k != key and k.startswith(f"{split} ")), None)
            splits[split] = read_examples(path, task, str(other) if side else None)
    return Examples(name, splits, dataset.rule, warnings)


def open_corpus(source: str, valid: float = 0.05, test: float = 0.05, field: str = "text") -> Corpus:
    """The corpus that a SOURCE stands for: a path or pattern, `-`, hf:…, or the name of a data set.

    `field` is where records (JSON lines, Parquet) have their text.
    """
    if source in WRITTEN and not Path(source).exists():
        return _written_corpus(source, valid, test)
    if source in DATASETS and DATASETS[source].task == "language" and not Path(source).exists():
        return _named_corpus(source, DATASETS[source])
    if (source in DATASETS or source in GENERATED) and not Path(source).exists():
        raise UsageError(f"'{source}' holds examples, for the task {task_of(source)}; this needs text.")
    somewhere = source == "-" or source.startswith(PREFIX) or set(source) & set("*?[")
    if not somewhere and not Path(source).expanduser().exists():
        hint = closest(source, NAMES)
        raise DataError(
            f"there is no file, folder or data set '{source}'.{hint} Data sets: {', '.join(NAMES)}."
        )
    if is_collection(source):
        return open_collection(source, valid, test, field)
    return own_corpus(source, valid, test)


def _written_corpus(name: str, valid: float, test: float) -> Corpus:
    documents = WRITTEN[name]()
    spans = [Span(name, data := text.encode(), 0, len(data)) for name, text in documents]
    splits, rule = divide(spans, valid, test)
    digests = [hashlib.sha256(text.encode()).hexdigest() for _, text in documents]
    return make_corpus(name, splits, rule, digests)


def _named_corpus(name: str, dataset: DataSet) -> Corpus:
    warnings: list[str] = []
    splits: dict[str, list[Span]] = {}
    digests: list[str] = []
    for split, file in dataset.files.items():
        path = local_file(name, dataset, file)
        digest = text_digest(path, str(path))
        digests.append(digest)
        if digest != file.sha256:
            known = "differs from the published one" if file.sha256 else "is not published"
            warnings.append(f"{path}: its checksum {known}; used as it is (sha256 {digest[:16]}…)")
        size = path.stat().st_size
        if split == "all":
            cut = character_start(Span(file.name, path, 0, size), int(size * (1 - dataset.valid)))
            splits = {"train": [Span(file.name, path, 0, cut)], "valid": [Span(file.name, path, cut, size)]}
        else:
            splits[split] = [Span(file.name, path, 0, size)]
    return make_corpus(name, splits, dataset.rule, digests, warnings)
