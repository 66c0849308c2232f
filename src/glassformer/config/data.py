"""The settings of data and tokenizer."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassformer.config.section import Section


class DataConfig(Section):
    source: str = Field(
        default="pydocs",
        description="file, folder, pattern with `*`, `-` (standard input), `hf:NAME` or name of a data set",
    )
    mix: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default={}, description="`{source: weight}`: several sources instead of one, in these shares"
    )
    field: str = Field(
        default="text", min_length=1, description="where records (JSON lines, Parquet, `hf:`) have their text"
    )
    newlines: Literal["normalise", "keep"] = Field(
        default="normalise",
        description="line ends of your own text and of prompts: `normalise` makes `\\n` of those of Windows "
        "(`\\r\\n`) and old Macs (`\\r`); `keep` leaves them as they are",
    )
    dedup: bool = Field(default=False, description="drop documents that came before, in any of the sources")
    valid: float = Field(default=0.05, gt=0, lt=0.5, description="share of your own text kept for validation")
    test: float = Field(
        default=0.05, ge=0, lt=0.5, description="share of your own text kept for the final test"
    )
    split: Literal["auto", "content", "name"] = Field(
        default="auto",
        description="how text without splits is divided: `content`, by a hash of what it says, a long text "
        "in scattered blocks; `name`, by a hash of file names, of few files the ends; `auto` is `content` "
        "for your own text",
    )
    target: str | None = Field(
        default=None, description="the other language of a parallel text, line by line"
    )
    vectors: str | None = Field(
        default=None,
        description="word vectors for the embedding, for `tokenizer.kind=word`: GloVe or word2vec as text, "
        "`.txt` or `.vec`, also `.gz`; fixed unless `model.embedding=learned`",
    )
    text_column: str | None = Field(
        default=None,
        coerce_numbers_to_str=True,
        description="of a table to classify, the column (of JSON lines the key) that holds the text: a "
        "name in the header, or a number from 1",
    )
    label_column: str | None = Field(
        default=None, coerce_numbers_to_str=True, description="and the one that holds the label"
    )
    labels: list[str] = Field(default=[], description="names of the labels; empty: those found in the data")
    image_size: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="pixels a side that images are brought to; 0: their own if they are square, alike and "
        "at most 64, else 32",
    )
    patch_size: int = Field(
        default=0, ge=0, le=256, description="pixels a side of a patch; 0: about eight patches a side"
    )
    channels: Literal[0, 1, 3] = Field(
        default=0, description="of images: 1 grey, 3 colour; 0: grey if all of them are"
    )

    @model_validator(mode="after")
    def _divisible(self) -> Self:
        if self.image_size and self.patch_size and self.image_size % self.patch_size:
            raise ValueError(
                f"data.image_size {self.image_size} is not a multiple of data.patch_size {self.patch_size}: "
                "an image is cut into whole patches"
            )
        return self


class TokenizerConfig(Section):
    kind: Literal["bpe", "byte", "char", "word", "pairs"] = Field(
        default="bpe", description="byte-pair encoding, bytes, characters, whole words, or character pairs"
    )
    vocab: int = Field(
        default=4096, ge=2, description="most entries to learn (bpe, word, char; shortlist of pairs)"
    )
    sides: Literal["joint", "separate"] = Field(
        default="joint",
        description="of translation: one vocabulary for both languages, or for each one of its own",
    )
    pattern: str = Field(
        default="gpt4",
        description="how BPE cuts text first: gpt2, gpt4, llama3, cl100k, o200k, whitespace, none, "
        "or a regular expression",
    )
    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = Field(
        default="none",
        description="a normal form of Unicode for all text; `none` loses nothing",
    )
    file: str | None = Field(default=None, description="use this tokenizer.json instead of learning one")

    @model_validator(mode="after")
    def _one_file(self) -> Self:
        if self.file and self.sides == "separate":
            raise ValueError(
                "tokenizer.file is one tokenizer, tokenizer.sides separate learns two: leave one of them out"
            )
        return self
