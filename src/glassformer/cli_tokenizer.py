"""`glassformer tokenizer …`: learn one, use it, and see text cut by each kind side by side."""

from typing import Annotated

import typer

from glassformer import console

tokenizer_app = typer.Typer(
    help="Learn a tokenizer, use it, see how each kind cuts a text.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

File = Annotated[str, typer.Argument(metavar="FILE", help="A tokenizer.json.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
KINDS = ("word", "char", "byte", "pairs", "bpe")


@tokenizer_app.command(
    "train", epilog="Example:  glassformer tokenizer train my.txt --vocab 8192 --out tokenizer.json"
)
@console.command
def train(
    source: Annotated[str, typer.Argument(help="File, folder, - or the name of a data set.")],
    out: Annotated[str, typer.Option(help="Where to write the tokenizer.json.")],
    vocab: Annotated[int, typer.Option(min=2, help="Entries at most, special tokens included.")] = 4096,
    kind: Annotated[str, typer.Option(help="bpe, byte, char, word or pairs.")] = "bpe",
    pattern: Annotated[str, typer.Option(help="How BPE cuts text first: gpt4 or gpt2.")] = "gpt4",
    json_: Json = False,
) -> None:
    """Learn a tokenizer from text; Hugging Face tokenizers reads the file too."""
    import time
    from pathlib import Path

    from glassformer.config import build
    from glassformer.files import writing
    from glassformer.text.datasets import open_corpus
    from glassformer.text.load import train_tokenizer

    settings = build({"tokenizer": {"kind": kind, "vocab": vocab, "pattern": pattern}}).tokenizer
    corpus = open_corpus(source)
    began = time.perf_counter()
    tokenizer = train_tokenizer(settings.kind, corpus.texts("train"), settings.vocab, settings.pattern)
    seconds = time.perf_counter() - began
    path = Path(out)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        tokenizer.save(path)
    result = {"file": out, "kind": kind, "vocab": len(tokenizer), "bytes": corpus.bytes("train")}
    if json_:
        console.put_json({**result, "seconds": round(seconds, 3)})
        return
    console.put(
        f"{out}: {kind}, {len(tokenizer)} entries, learned from {corpus.bytes('train'):,} bytes "
        f"(the training split of {source}) in {seconds:.1f} s"
    )


@tokenizer_app.command("encode", epilog='Example:  glassformer tokenizer encode tokenizer.json "Hello world"')
@console.command
def encode(
    file: File,
    text: Annotated[str, typer.Argument(help="The text; - reads standard input.")],
    specials: Annotated[bool, typer.Option("--specials", help="Recognise special tokens in it.")] = False,
    json_: Json = False,
) -> None:
    """The ids of a text."""
    import sys

    from glassformer.text.load import load_tokenizer

    tokenizer = load_tokenizer(file)
    if text == "-":
        text = sys.stdin.read()
    ids = tokenizer.encode(text, tokenizer.specials if specials else ())
    console.put_json({"ids": ids}) if json_ else console.put(" ".join(map(str, ids)))


@tokenizer_app.command("decode", epilog='Example:  glassformer tokenizer decode tokenizer.json "72 101 108"')
@console.command
def decode(
    file: File,
    ids: Annotated[str, typer.Argument(metavar="TEXT", help="Ids with blanks or commas between; or -.")],
    json_: Json = False,
) -> None:
    """The text of ids."""
    import sys

    from glassformer.errors import UsageError
    from glassformer.text.load import load_tokenizer

    given = (sys.stdin.read() if ids == "-" else ids).replace(",", " ").strip("[]\n ").split()
    wrong = [word for word in given if not word.isdecimal()]
    if wrong:
        raise UsageError(f"'{wrong[0]}' is no id: expected whole numbers, for example 72 101 108")
    text = load_tokenizer(file).decode(int(word) for word in given)
    console.put_json({"text": text}) if json_ else console.put(text)


@tokenizer_app.command("show", epilog='Example:  glassformer tokenizer show "an asinine situation"')
@console.command
def show(
    text: Annotated[str, typer.Argument(help="The text to cut.")],
    source: Annotated[str, typer.Option(help="What the tokenizers learn from.")] = "pydocs",
    vocab: Annotated[int, typer.Option(min=512, help="Entries that each may learn.")] = 4096,
    json_: Json = False,
) -> None:
    """One text, cut by word, character, byte, character pair and BPE, side by side."""
    from glassformer.text.datasets import open_corpus
    from glassformer.text.load import train_tokenizer

    corpus = open_corpus(source)
    texts = list(corpus.texts("train", limit=8_000_000))
    cuts = {kind: train_tokenizer(kind, texts, vocab).show(text) for kind in KINDS}
    if json_:
        console.put_json(cuts)
        return
    console.put(f"learned from {source}, at most {vocab} entries; · is a blank, | a cut\n")
    for kind, pieces in cuts.items():
        shown = "|".join(p.replace(" ", "·").replace("\n", "⏎") for p in pieces)
        console.put(f"{kind:<6} {len(pieces):>4}  {shown}")
