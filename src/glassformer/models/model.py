"""What models are to the rest of the project, whatever is inside them.

A model is a *body*, which makes one vector per position out of a sequence, and a *head*, which makes of these
what a task asks for. There are three bodies (transformer.py, recurrent.py, window.py) and three ways to use
one:

    LanguageModel         ids ──► body ──► a score for every next token
    EncoderModel          ids or patches ──► body ──► labels of the whole, of each position, of hidden tokens
    EncoderDecoderModel   source ──► body ──► memory;  target + memory ──► body ──► scores of next tokens

What is made of the vectors and the head is a `readout`: the scores by default, a loss in training. It is done
inside `forward`, so that it is compiled and divided among processes with the rest, and so that head and loss
may be joined without anybody else knowing.

Letters: B batch, T positions, S source positions, C model width, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from glassformer.config.model import ModelConfig
from glassformer.models.dropout import DROPOUTS
from glassformer.models.init import initialise, start_unembedding
from glassformer.models.readout import Head
from glassformer.models.state import Memory, State
from glassformer.models.tap import Tap, inside, off

Readout = Callable[..., Tensor]  # of the vectors (B, T, C), the head, the tap, and what else it is given


def scores(x: Tensor, head: Callable[[Tensor], Tensor], tap: Tap) -> Tensor:
    """The head's scores, (B, T, V) or (B, V)."""
    return tap("logits", head(x))


class Body(nn.Module, ABC):
    """A sequence in, (B, T) ids or (B, T, P) patches; one vector per position out, (B, T, C)."""

    embedding: nn.Module
    blocks: nn.ModuleList  # what it is deep by
    embedding_std: float | None = None  # how large embeddings start; None: as init.py has it
    unembedding_std: float | None = None  # how large the matrix on top of it starts; None: as init.py has it
    limit: int | None  # positions it can see at once; None: it reads a sequence of any length
    span: int | None = None  # tokens that reach its answer, where that is less than it reads
    compiles = True  # whether torch.compile has something to gain
    divisible = False  # whether its blocks may lie over several processes

    @abstractmethod
    def forward(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        state: Any = None,
        tap: Tap = off,
        memory: Memory | None = None,
    ) -> Tensor:
        """`padding_mask` (B, T) is False where there is padding, or a position that no other may see.

        With a state, inputs are the new positions only: the state holds what came before and is carried on.
        """

    @abstractmethod
    def new_state(self, batch: int, capacity: int | None = None, memory: Memory | None = None) -> State:
        """Empty memory for `batch` sequences of at most `capacity` positions."""


class WritingModel(nn.Module, ABC):
    """What writes, token by token: a body that reads what there is of a text, and a score for every entry."""

    vocab: int
    unembedding: nn.Linear

    @property
    @abstractmethod
    def writer(self) -> Body:
        """The body that reads what was written."""

    @abstractmethod
    def read_on(
        self, ids: Tensor, state: State | None = None, tap: Tap = off, padding_mask: Tensor | None = None
    ) -> Tensor:
        """The vectors (B, T, C) of new ids (B, T); what they are read behind is in the state."""

    @property
    def limit(self) -> int | None:
        """How many positions it can see at most; None: any number."""
        return self.writer.limit

    def next_scores(
        self, ids: Tensor, state: State | None = None, tap: Tap = off, padding_mask: Tensor | None = None
    ) -> Tensor:
        """Scores (B, V) of the token after the last of each row: a prompt is not scored all along."""
        x = self.read_on(ids, state, tap, padding_mask)  # (B, T, C)
        last = last_tokens(x, padding_mask)  # (B, 1, C)
        return scores(last, self.unembedding, tap)[:, 0]


class LanguageModel(WritingModel):
    """Scores (B, T, V) of the token that follows each of ids (B, T)."""

    shared_body = ("stack.",)  # what a model for another task can take over

    def __init__(self, body: Body, config: ModelConfig):
        super().__init__()
        self.config, self.stack, self.vocab = config, body, config.vocab
        self.dropout = DROPOUTS[config.dropout_over](config.output_dropout or 0.0)
        self.unembedding = nn.Linear(config.width, config.vocab, bias=False)
        initialise(self, config.init, body.embedding_std)
        start_unembedding(self.unembedding, body.embedding, config.tied, config.init, body.unembedding_std)

    def __repr__(self) -> str:
        return describe(self, self.config)

    @property
    def writer(self) -> Body:
        return self.stack

    def forward(
        self,
        ids: Tensor,
        state: State | None = None,
        tap: Tap = off,
        padding_mask: Tensor | None = None,
        readout: Readout = scores,
        readout_args: tuple[Any, ...] = (),
    ) -> Tensor:
        x = self.dropout(self.read_on(ids, state, tap, padding_mask))  # (B, T, C)
        return readout(x, self.unembedding, tap, *readout_args)

    def read_on(
        self, ids: Tensor, state: State | None = None, tap: Tap = off, padding_mask: Tensor | None = None
    ) -> Tensor:
        return self.stack(ids, padding_mask, state, tap)

    def new_state(self, batch: int, capacity: int | None = None) -> State:
        """Empty memory for `batch` sequences, for reading on without reading again."""
        return self.stack.new_state(batch, capacity)


class EncoderModel(nn.Module):
    """A body that sees the whole sequence at once, and a head."""

    shared_body = ("stack.",)

    def __init__(self, body: Body, head: Head, config: ModelConfig):
        super().__init__()
        self.config, self.stack, self.head = config, body, head
        initialise(self, config.init, body.embedding_std)
        start_unembedding(head.linear, body.embedding, False, config.init, body.unembedding_std)

    def __repr__(self) -> str:
        return describe(self, self.config)

    def forward(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        tap: Tap = off,
        readout: Readout = scores,
        readout_args: tuple[Any, ...] = (),
    ) -> Tensor:
        x = self.stack(inputs, padding_mask, None, tap)  # (B, T, C)
        return readout(x, lambda x: self.head(x, padding_mask, tap), tap, *readout_args)


class EncoderDecoderModel(WritingModel):
    """Reads a source sequence into a memory, and writes a target sequence while looking into it."""

    entry_points = ("encode", "decode")  # what is called on it besides `forward`

    def __init__(self, encoder: Body, decoder: Body, config: ModelConfig):
        super().__init__()
        self.config, self.vocab = config, config.vocab
        self.encoder, self.decoder = encoder, decoder
        self.dropout = DROPOUTS[config.dropout_over](config.output_dropout or 0.0)
        self.unembedding = nn.Linear(config.width, config.vocab, bias=False)
        initialise(self, config.init, decoder.embedding_std)
        start_unembedding(
            self.unembedding, decoder.embedding, config.tied, config.init, decoder.unembedding_std
        )

    def __repr__(self) -> str:
        return describe(self, self.config)

    @property
    def writer(self) -> Body:
        return self.decoder

    def forward(
        self,
        source: Tensor,
        target: Tensor,
        padding_mask: Tensor | None = None,
        tap: Tap = off,
        readout: Readout = scores,
        readout_args: tuple[Any, ...] = (),
    ) -> Tensor:
        """Scores (B, T, V) of what follows each of target (B, T), given source (B, S)."""
        memory = self.encode(source, padding_mask, inside(tap, "encoder"))
        x = self.dropout(self.decoder(target, None, None, inside(tap, "decoder"), memory))  # (B, T, C)
        return readout(x, self.unembedding, tap, *readout_args)

    def encode(self, source: Tensor, padding_mask: Tensor | None = None, tap: Tap = off) -> Memory:
        """What the decoder looks into: a vector for every position of source (B, S)."""
        return Memory(self.encoder(source, padding_mask, None, tap), padding_mask)

    def start(self, source: Tensor, padding_mask: Tensor | None = None, capacity: int | None = None) -> State:
        """The state in which writing begins."""
        return self.decoder.new_state(len(source), capacity, self.encode(source, padding_mask))

    def read_on(
        self, ids: Tensor, state: State | None = None, tap: Tap = off, padding_mask: Tensor | None = None
    ) -> Tensor:
        """Behind what the state holds, which has the memory too."""
        return self.decoder(ids, padding_mask, state, inside(tap, "decoder"))


def last_tokens(x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """The vector of the last real position of each row, (B, 1, C); padding comes behind it."""
    if padding_mask is None:
        return x[:, -1:]
    last = padding_mask.sum(dim=1, keepdim=True) - 1  # (B, 1)
    return x.gather(1, last[..., None].expand(-1, -1, x.shape[-1]))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout, and without a trace in the averages of norms; as it was afterwards."""
    if not model.training:
        yield
        return
    model.eval()
    try:
        yield
    finally:
        model.train()


def describe(model: nn.Module, config: ModelConfig) -> str:
    """A model in a line; its modules are listed by `print(*model.named_modules(), sep="\\n")`."""
    heads = f" of {config.heads} heads" if config.family == "transformer" else ""
    return (
        f"{type(model).__name__}({config.family}, {config.layers} layers{heads}, width {config.width}, "
        f"vocabulary {config.vocab}, {parameter_count(model):,} parameters)"
    )


def parameter_count(model: nn.Module) -> int:
    """Distinct trainable and frozen numbers; a tied matrix counts once."""
    return sum(p.numel() for p in model.parameters())
