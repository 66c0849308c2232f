"""The kernels of a step in their order, for some rows of (token, position, pages).

    vectors   embed  [qkv  (heads)  attend  out  up  down] × L                    scores
    tiles     embed  norm  [qkv  (heads)  attend  out  join  up  down  join] × L  norm  scores

Square brackets are a layer; heads are made in the product before them, where queries and keys have no norm.
Which of the two kinds of products (kernels/products.py) is taken is decided once. What the kernels work on
lies at fixed addresses and is there for the most rows that may come.

Letters: R rows, L layers, C model width, H heads, K key-value heads, D head width, E value width, M hidden
width, V vocabulary, P positions of a page.
"""

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from glassformer.core.triton_kernels import begins_early, next_power_of_2
from glassformer.generation.gpu.kernels import attention, heads, products, stream
from glassformer.generation.gpu.weights import Layer, Matrix, Norm, Weights

# Triton's functions, whose launches no type says.
embed_kernel: Any = stream.embed_kernel
join_kernel: Any = stream.join_kernel
vectors_kernel: Any = products.vectors_kernel
tiles_kernel: Any = products.tiles_kernel
heads_kernel: Any = heads.heads_kernel
attend_kernel: Any = attention.attend_kernel

Products = Literal["vectors", "tiles"]
NO_NORM, NO_HEADS = Norm(), dict[str, Any]()
MOST_INPUTS = 4096  # that a warp can keep of a row of weights
FEW_INPUTS = 1024  # of which it can keep several rows

# Sizes that change how fast it is, and the order of sums: SPAN, INPUTS, TILE_INPUTS and PARTS.
SPAN = 64  # positions that one program looks at
OUTPUTS, INPUTS = 2, 128  # of a tile of weights, vectors; as many warps as outputs
MANY_OUTPUTS = 1 << 14  # those of the scores
TIMES = ((MANY_OUTPUTS, 4), (1 << 11, 2), (0, 1))  # from so many on a warp has so many rows of weights
# The same, tiles, by how many texts are written at once: rows of x, and of weights, that a tile has
FEW_TEXTS, FEW_TILE, MANY_TILE = 16, (16, 32), (64, 16)
TILE_INPUTS = {2: 128, 4: 64}  # by bytes of a number
SCORE_OUTPUTS = 64  # of a tile of scores
TILE_STAGES = 4  # tiles of weights that are under way at once
PARTS = 4  # into which the sums of the narrow outputs of tiles are divided


class Standing(NamedTuple):
    """Where rows stand in their texts."""

    positions: Tensor  # (R)
    tables: Tensor  # (R, pages of a whole context)
    reach: int  # no position is beyond the first so many
    alone: bool = False  # no text has more than one row


class Walk:
    """A model's kernels, and the memory that they work on."""

    def __init__(self, weights: Weights, rows: int, pages: int, size: int, kind: Products, texts: int):
        """Room for so many rows at once, and for `pages` pages of this size, to write so many texts."""
        self.weights, self._size = weights, size
        w, device = weights, weights.embedding.device
        self._tiled = kind == "tiles"
        self._early = begins_early(device)
        between = w.dtype if self._tiled else torch.float32  # what products read
        self._few = texts <= FEW_TEXTS
        self._tile = FEW_TILE if self._few or w.dtype == torch.float32 else MANY_TILE
        spans = -(-w.context // SPAN)

        def room(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        self.keys = room(len(w.layers), pages, w.kv_heads, size, w.head_width, dtype=w.dtype)
        self.values = room(len(w.layers), pages, w.kv_heads, size, w.value_width, dtype=w.dtype)
        self._x, self._h = room(rows, w.width), room(rows, w.width, dtype=between)
        self._qkv, self._q = room(rows, len(w.layers[0].qkv.weight)), room(rows, w.heads, w.head_width)
        self._z = room(rows, w.heads * w.value_width, dtype=between)
        self._units = room(rows, w.hidden, dtype=between)
        self._parts = room(PARTS, rows, w.width)
        self._found = room(rows, w.heads, spans, w.value_width + 2)
        self._arrived = torch.zeros(rows, w.heads, dtype=torch.int32, device=device)
        self.scores = room(rows, w.vocab)  # of the rows that are picked

    def read(self, R: int, tokens: Tensor, rows: Standing) -> None:
        """R rows through all layers: their keys and values are kept, the stream stands where it ends."""
        w = self.weights
        embed_kernel[(R,)](
            self._x,
            tokens,
            rows.positions,
            w.embedding,
            w.places,
            w.embedding_scale,
            C=w.width,
            BLOCK=next_power_of_2(w.width),
            **self._early,
        )
        if self._tiled:
            self._join(R, w.layers[0].attention_norm)
        after = [layer.attention_norm for layer in w.layers[1:]] + [w.norm]
        for i, (layer, norm) in enumerate(zip(w.layers, after, strict=True)):
            self._layer(R, i, layer, norm, rows)

    def score(self, R: int, picks: Tensor) -> None:
        """Scores of the R rows that `picks` names."""
        norm, matrix = self.weights.norm, self.weights.unembedding
        if self._tiled:
            self._join(R, norm, picks=picks)
            self._by_tiles(R, self._h, matrix, self.scores)
        else:
            self._by_vectors(R, self._x, matrix, self.scores, norm=norm, picks=picks)

    def _layer(self, R: int, i: int, layer: Layer, after: Norm, rows: Standing) -> None:
        """One layer; `after` is the norm that the next one reads through."""
        act = self.weights.activation
        self._make_heads(R, i, layer, rows)
        self._attend(R, i, rows)
        if not self._tiled:
            self._by_vectors(R, self._z, layer.out, self._x, "add")
            self._by_vectors(R, self._x, layer.up, self._units, act, norm=layer.mlp_norm)
            self._by_vectors(R, self._units, layer.down, self._x, "add")
            return
        self._by_tiles(R, self._z, layer.out, self._parts, "part")
        self._join(R, layer.mlp_norm, layer.out)
        self._by_tiles(R, self._h, layer.up, self._units, act)
        self._by_tiles(R, self._units, layer.down, self._parts, "part")
        self._join(R, after, layer.down)

    def _make_heads(self, R: int, i: int, layer: Layer, rows: Standing) -> None:
        """Queries, and keys and values in their pages: by the product itself, if no norm comes between."""
        heads, is_normed = self._heads(i, rows), layer.qk_norm.kind != "none"
        out, finish, given = (self._qkv, "store", NO_HEADS) if is_normed else (self._q, "heads", heads)
        if self._tiled:
            self._by_tiles(R, self._h, layer.qkv, out, finish, given)
        else:
            self._by_vectors(R, self._x, layer.qkv, out, finish, layer.attention_norm, heads=given)
        if is_normed:
            self._norm_heads(R, layer.qk_norm, heads)

    def _heads(self, i: int, rows: Standing) -> dict[str, Any]:
        """What the heads of a layer are made by, and where its keys and values go."""
        w = self.weights
        return {
            "tokens_at": rows.positions,
            "tables": rows.tables,
            "cos": w.cos,
            "sin": w.sin,
            "scale": w.score_scale,
            "keys": self.keys[i],
            "values": self.values[i],
            "H": w.heads,
            "G": w.kv_heads,
            "D": w.head_width,
            "E": w.value_width,
            "P": self._size,
            "TABLE": rows.tables.shape[1],
        }

    def _norm_heads(self, R: int, norm: Norm, heads: dict[str, Any]) -> None:
        w = self.weights
        heads_kernel[(R, w.heads + 2 * w.kv_heads)](
            qkv=self._qkv,
            gamma=norm.gamma,
            beta=norm.beta,
            eps=norm.eps,
            q=self._q,
            BLOCK=next_power_of_2(max(w.head_width, w.value_width)),
            NORM=norm.kind,
            num_warps=1,
            **heads,
            **self._early,
        )

    def _attend(self, R: int, i: int, rows: Standing) -> None:
        w = self.weights
        attend_kernel[(R, w.heads, -(-rows.reach // SPAN))](
            self._q,
            self.keys[i],
            self.values[i],
            rows.positions,
            rows.tables,
            w.slopes,
            self._z,
            self._found,
            self._arrived,
            H=w.heads,
            K=w.kv_heads,
            D=w.head_width,
            E=w.value_width,
            BD=next_power_of_2(w.head_width),
            BE=next_power_of_2(w.value_width),
            P=self._size,
            TABLE=rows.tables.shape[1],
            WINDOW=w.window,
            SPAN=SPAN,
            SPANS=self._found.shape[2],
            ALONE=rows.alone and self._few,  # many programs hide each other's waiting, and need the room
            **self._early,
        )

    def _by_vectors(
        self,
        R: int,
        x: Tensor,
        matrix: Matrix,
        out: Tensor,
        finish: str = "store",
        norm: Norm = NO_NORM,
        picks: Tensor | None = None,
        heads: dict[str, Any] = NO_HEADS,
    ) -> None:
        N, K = len(matrix.weight) if heads else out.shape[-1], x.shape[-1]
        times = next(times for outputs, times in TIMES if outputs <= N) if K <= FEW_INPUTS else 1
        vectors_kernel[(-(-N // (OUTPUTS * times)),)](
            x,
            picks,
            matrix.weight,
            matrix.bias,
            norm.gamma,
            norm.beta,
            norm.eps,
            out,
            R,
            N=N,
            K=K,
            NORM=norm.kind,
            FINISH=finish,
            BN=OUTPUTS,
            BK=INPUTS,
            TIMES=times,
            num_warps=OUTPUTS,
            **heads,
            **self._early,
        )

    def _by_tiles(
        self,
        R: int,
        h: Tensor,
        matrix: Matrix,
        out: Tensor,
        finish: str = "store",
        heads: dict[str, Any] = NO_HEADS,
    ) -> None:
        N, K = len(matrix.weight) if heads else out.shape[-1], h.shape[-1]
        rows, outputs = self._tile
        outputs = SCORE_OUTPUTS if N >= MANY_OUTPUTS else outputs
        inputs = TILE_INPUTS[self.weights.dtype.itemsize]
        tiles = -(-K // inputs)
        part = inputs * (-(-tiles // PARTS) if finish == "part" else tiles)
        tiles_kernel[(-(-N // outputs), -(-R // rows), PARTS if finish == "part" else 1)](
            h,
            matrix.weight,
            None if finish == "part" else matrix.bias,
            out,
            R,
            N=N,
            K=K,
            FINISH=finish,
            STRIDE=self._parts.stride(0),
            PART=part,
            BR=rows,
            BN=outputs,
            BK=inputs,
            PRECISION="ieee",
            num_stages=TILE_STAGES,
            **heads,
            **self._early,
        )

    def _join(self, R: int, norm: Norm, matrix: Matrix | None = None, picks: Tensor | None = None) -> None:
        """What a product's parts add to the stream, and the norm of the stream."""
        C = self.weights.width
        join_kernel[(R,)](
            self._x,
            picks,
            self._parts,
            None if matrix is None else matrix.bias,
            norm.gamma,
            norm.beta,
            norm.eps,
            self._h,
            C=C,
            BLOCK=next_power_of_2(C),
            STRIDE=self._parts.stride(0),
            S=0 if matrix is None else PARTS,
            NORM=norm.kind,
            **self._early,
        )
