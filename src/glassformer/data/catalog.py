"""The data sets that have a name: what each is, which task it is for, where it comes from.

To add one, add its entry to DATASETS, and its row to docs/data.md. A published set is files, with addresses
and checksums (download.py gets them). One that is made here has a module of its name in generated/, which is
imported only when the set is asked for: reading this table costs nothing, so the help of the command line
can take its names from here.
"""

from dataclasses import dataclass

from glassformer.core.errors import DataError, closest
from glassformer.core.files import names_in, user_path

HUB_PREFIX = "hf:"  # of a data set on Hugging Face's hub


@dataclass(frozen=True)
class File:
    """One file of a data set: its name here, and its checksum where that is published."""

    name: str
    sha256: str | None = None
    member: str | None = None  # its path inside the archive, when the download is one
    urls: tuple[str, ...] = ()  # where it lies by itself, when it does; .gz is unpacked


@dataclass(frozen=True, kw_only=True)
class Published:
    """A data set that is downloaded, or found where the user keeps it."""

    about: str
    task: str = "language"
    folder: str  # under GLASSFORMER_DATA, and in the cache
    files: dict[str, File]  # split → file; "all": divided here; of a parallel text "split side"
    urls: tuple[str, ...] = ()  # of one download that holds all files, tried in turn
    checksum: str = ""  # algorithm:digest of that download
    valid: float = 0.0  # share of "all" that is validation
    rule: str  # how the splits were made, in words


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A data set that is made here: generated/NAME.py has `documents()` of text, or `examples()`."""

    about: str
    task: str = "language"
    relations: bool = False  # whether it has `relations()` too: marked sentences that it does not hold


SST2 = "https://raw.githubusercontent.com/clairett/pytorch-sentiment-classification/master/data/SST2/"
MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"

DATASETS: dict[str, Published | Generated] = {
    "pydocs": Generated(about="the manual and the docstrings that every Python carries"),
    "repeats": Generated(about="random words, each said three times: only looking back helps"),
    "pronouns": Generated(
        about="small stories in which a pronoun has to be followed to whom it stands for", relations=True
    ),
    "shakespeare": Published(
        about="Tiny Shakespeare, 1.1 MB of plays",
        folder="tinyshakespeare",
        urls=("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
        files={"all": File("input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")},
        checksum="sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        valid=0.1,
        rule="the first 90 % train, the last 10 % valid; no test split",
    ),
    "wikitext-2": Published(
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
    "sst2": Published(
        about="SST-2, 9,613 sentences of film reviews, negative (0) or positive (1)",
        folder="sst2",
        task="classify",
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
    "multi30k": Published(
        about="Multi30k, 31,014 captions of photographs, English and German",
        folder="multi30k-en-de",
        task="translate",
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
    "dates": Generated(about="dates as people write them → ISO form", task="translate"),
    "docstrings": Generated(about="docstrings of the standard library → topic", task="classify"),
    "pycode": Generated(about="the words of a line of Python → keyword, call, attribute, …", task="tag"),
    "digits": Generated(about="scikit-learn's 8 × 8 digits as patches → which digit", task="classify"),
}


def dataset_names(task: str | None = None) -> list[str]:
    """The names of all data sets, or of those that are for one task."""
    return [name for name, dataset in DATASETS.items() if task in (None, dataset.task)]


def refuse_missing(source: str, task: str | None = None) -> None:
    """Refuse a SOURCE that is neither a data set's name nor there, before anything is loaded for it.

    Text may also come from standard input, a pattern or the hub; examples only from a file or folder.
    """
    of_examples = {dataset.task for dataset in DATASETS.values()} - {"language"}
    text = task not in of_examples
    elsewhere = text and (source == "-" or source.startswith(HUB_PREFIX) or set(source) & set("*?["))
    if elsewhere or source in DATASETS or (source != "-" and user_path(source).exists()):
        return
    path = user_path(source)
    hint = closest(source, [*dataset_names(), *(str(path.parent / name) for name in names_in(path.parent))])
    wanted, fitting = "", dataset_names()
    if not text:  # those that need no download first
        wanted = f" for the task {task}"
        fitting = sorted(dataset_names(task), key=lambda name: isinstance(DATASETS[name], Published))
    raise DataError(
        f"there is no file, folder or data set '{source}'{wanted}.{hint} Data sets: {', '.join(fitting)}."
    )
