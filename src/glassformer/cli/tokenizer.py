"""`glassformer tokenizer …`: learn one, use it, and see text cut by each kind side by side."""

from typing import Annotated, Any

import typer

from glassformer.cli import console
from glassformer.cli.tokens import put_merges, put_spans, put_steps, visible

tokenizer_app = typer.Typer(
    help="Learn a tokenizer, use it, see how each kind cuts a text.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[str, typer.Argument(metavar="FILE", help="A tokenizer.json.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
KINDS = ("word", "char", "byte", "pairs", "bpe")


@tokenizer_app.command(
    "train",
    epilog="""Examples:

  glassformer tokenizer train my.txt --vocab 8192 --out tokenizer.json

  glassformer tokenizer train book.en book.de --weight 1 --weight 2 --out joint.json""",
)
@console.command
def train(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE…", help="Files, folders, - or names of data sets.")
    ],
    out: Annotated[str, typer.Option(help="Where to write the tokenizer.json.")],
    vocab: Annotated[int, typer.Option(min=2, help="Entries at most, special tokens included.")] = 4096,
    kind: Annotated[str, typer.Option(help="bpe, byte, char, word or pairs.")] = "bpe",
    pattern: Annotated[
        str,
        typer.Option(
            help="How BPE cuts text first: gpt2, gpt4, llama3, cl100k, o200k, whitespace, none, or a regular "
            "expression."
        ),
    ] = "gpt4",
    weight: Annotated[
        list[float] | None, typer.Option(help="How much each source counts, in their order.")
    ] = None,
    special: Annotated[
        list[str] | None, typer.Option(help="A special token; more with more of these. [<|endoftext|>]")
    ] = None,
    min_frequency: Annotated[int, typer.Option(min=1, help="Pairs that occur more rarely stay two.")] = 2,
    alphabet: Annotated[str, typer.Option(help="Characters that get an entry of their own.")] = "",
    ties: Annotated[
        str, typer.Option(help="Of equally frequent pairs first: by bytes, or as Hugging Face by signs.")
    ] = "bytes",
    normalization: Annotated[str, typer.Option(help="none, nfc, nfd, nfkc or nfkd.")] = "none",
    threads: Annotated[int | None, typer.Option(min=1, help="All cores unless told.")] = None,
    json_: Json = False,
) -> None:
    """Learn a tokenizer from the training split of texts; Hugging Face tokenizers reads the file too."""
    import time
    from pathlib import Path

    from glassformer.config.schema import build
    from glassformer.core.errors import UsageError
    from glassformer.core.files import make_folder
    from glassformer.data.datasets import open_corpus
    from glassformer.tokenizers.load import train_tokenizer
    from glassformer.tokenizers.tokenizer import END_OF_TEXT

    asked = {"kind": kind, "vocab": vocab, "pattern": pattern, "normalization": normalization}
    settings = build({"tokenizer": asked}).tokenizer
    if ties not in ("bytes", "signs"):
        raise UsageError(f"--ties {ties}: expected bytes or signs")
    if any(Path(out).exists() and Path(source).exists() and Path(out).samefile(source) for source in sources):
        raise UsageError(f"--out {out} is what is to be read: it would be lost. Give another name.")
    if Path(out).is_dir():
        raise UsageError(
            f"--out {out} is a folder: expected the name of a file, {out}/tokenizer.json for example"
        )
    if weight and len(weight) != len(sources):
        raise UsageError(f"--weight: {len(weight)} given for {len(sources)} sources; expected one for each")
    only_bpe = (
        weight,
        min_frequency != 2,
        alphabet,
        ties != "bytes",
        normalization != "none",
        pattern != "gpt4",
    )
    if settings.kind != "bpe" and any(only_bpe):
        raise UsageError(
            "--weight, --min-frequency, --alphabet, --ties, --normalization and --pattern are for --kind bpe"
        )
    console.phase("Opening")
    corpora = [open_corpus(source) for source in sources]
    for warning in (w for corpus in corpora for w in corpus.warnings):
        console.note(f"Note: {warning}")
    size = sum(corpus.bytes("train") for corpus in corpora)
    dropped = 0
    began = time.perf_counter()
    with console.working("reading", size) as read:

        def progress(what: str, n: int) -> None:
            nonlocal dropped
            if what == "bytes":
                read(n)
            dropped += n if what == "dropped" else 0

        more: dict[str, Any] = {
            "min_frequency": min_frequency,
            "alphabet": alphabet,
            "ties": ties,
            "normalization": settings.normalization,
            "threads": threads,
            "progress": progress,
        }
        texts = (
            (text, w) if weight else text
            for corpus, w in zip(corpora, weight or [1.0] * len(corpora), strict=True)
            for text in corpus.texts("train")
        )
        named = tuple(special or [END_OF_TEXT])
        tokenizer = train_tokenizer(settings.kind, texts, settings.vocab, settings.pattern, named, **more)
    seconds = time.perf_counter() - began
    path = Path(out)
    make_folder(path.parent)
    tokenizer.save(path)
    if dropped:
        console.note(
            f"Note: the rarest pieces, {dropped:,} occurrences in all, were left out to save memory; the "
            "count of a pair may be too low by that."
        )
    result = {"file": out, "kind": kind, "vocab": len(tokenizer), "bytes": size, "dropped": dropped}
    if len(tokenizer) < vocab and settings.kind == "bpe":
        console.note(f"Note: {len(tokenizer)} entries, for no other pair occurs {min_frequency} times.")
    if json_:
        console.put_json({**result, "seconds": round(seconds, 3)})
        return
    console.put(
        f"{out}: {kind}, {len(tokenizer)} entries, learned from {size:,} bytes "
        f"(the training split of {', '.join(sources)}) in {seconds:.1f} s"
    )


@tokenizer_app.command(
    "encode",
    epilog="""Examples:

  glassformer tokenizer encode tokenizer.json "Hello world"

  glassformer tokenizer encode tokenizer.json "lowest" --steps      how merging goes""",
)
@console.command
def encode(
    file: File,
    text: Annotated[str, typer.Argument(help="The text; - reads standard input.")],
    specials: Annotated[bool, typer.Option("--specials", help="Recognise special tokens in it.")] = False,
    spans: Annotated[
        bool, typer.Option("--spans", help="Where each token stands: bytes, characters.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Each piece of the text, merge by merge.")] = False,
    json_: Json = False,
) -> None:
    """The ids of a text."""
    import os

    from glassformer.core.errors import UsageError
    from glassformer.core.terminal import standard_input
    from glassformer.tokenizers.load import load_tokenizer

    tokenizer = load_tokenizer(file)
    data = standard_input().read() if text == "-" else os.fsencode(text)
    text = data.decode(errors="replace")
    if spans + steps + specials > 1:
        raise UsageError("give one of --specials, --spans and --steps")
    if spans:
        put_spans(tokenizer, text, json_)
    elif steps:
        put_steps(tokenizer, text, json_)
    else:
        ids = tokenizer.encode(text, tokenizer.specials) if specials else tokenizer.encode(data)
        console.put_json({"ids": ids}) if json_ else console.put(" ".join(map(str, ids)))


@tokenizer_app.command("decode", epilog='Example:  glassformer tokenizer decode tokenizer.json "72 101 108"')
@console.command
def decode(
    file: File,
    ids: Annotated[str, typer.Argument(metavar="TEXT", help="Ids with blanks or commas between; or -.")],
    json_: Json = False,
) -> None:
    """The text of ids."""
    from glassformer.core.errors import UsageError
    from glassformer.core.terminal import read_standard_input
    from glassformer.tokenizers.load import load_tokenizer

    listed = (read_standard_input() if ids == "-" else ids).strip().removeprefix('{"ids":').rstrip("}")
    words = listed.replace(",", " ").strip("[]\n ").split()
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        raise UsageError(f"'{wrong[0]}' is no id: expected whole numbers, for example 72 101 108")
    text = load_tokenizer(file).decode(int(word) for word in words)
    console.put_json({"text": text}) if json_ else console.put(text)


@tokenizer_app.command(
    "merges",
    epilog="""Examples:

  glassformer tokenizer merges tokenizer.json --first 20

  glassformer tokenizer merges runs/mine                     of a run""",
)
@console.command
def merges(
    file: File,
    first: Annotated[int | None, typer.Option(min=1, help="Only so many.", show_default=False)] = None,
    json_: Json = False,
) -> None:
    """The merges of byte-pair encoding in the order learned: which two tokens became one."""
    from glassformer.tokenizers.load import load_tokenizer

    put_merges(load_tokenizer(file), first, json_)


@tokenizer_app.command(
    "show",
    epilog="""Examples:

  glassformer tokenizer show "an asinine situation"

  glassformer tokenizer show "ein Hund" --source book.en --source book.de     joint BPE, and one for each""",
)
@console.command
def show(
    text: Annotated[str, typer.Argument(help="The text to cut.")],
    source: Annotated[
        list[str] | None,
        typer.Option(help="What the tokenizers learn from; of several, also separately. [pydocs]"),
    ] = None,
    vocab: Annotated[int, typer.Option(min=512, help="Entries that each may learn.")] = 4096,
    json_: Json = False,
) -> None:
    """One text, cut by word, character, byte, character pair and BPE, side by side."""
    from glassformer.data.datasets import open_corpus
    from glassformer.tokenizers.load import train_tokenizer

    sources = source or ["pydocs"]
    console.phase("Learning tokenizers")
    texts = {name: list(open_corpus(name).texts("train", limit=8_000_000)) for name in sources}
    joint = [piece for pieces in texts.values() for piece in pieces]
    cuts = {kind: train_tokenizer(kind, joint, vocab).show(text) for kind in KINDS}
    if len(sources) > 1:
        cuts |= {f"bpe of {name}": train_tokenizer("bpe", texts[name], vocab).show(text) for name in sources}
    if json_:
        console.put_json(cuts)
        return
    console.put(f"learned from {', '.join(sources)}, at most {vocab} entries; · is a blank, | a cut\n")
    width = max(map(len, cuts))
    for kind, pieces in cuts.items():
        console.put(f"{kind:<{width}} {len(pieces):>4}  {'|'.join(map(visible, pieces))}")
