"""The kernels of a step in their order, for some rows of (token, position, pages).

    vectors   embed  [qkv  heads  attend  out  up  down] × L                    scores
    tiles     embed  norm  [qkv  heads  attend  out  join  up  down  join] × L  norm  scores

Square brackets are a layer. Which of the two kinds of products (kernels/products.py) is taken is decided
once. What the kernels work on lies at fixed addresses and is there for the most rows that may come.

Letters: R rows, L layers, C model width, H heads, K key-value heads, D head width, E value width, M hidden
width, V vocabulary, P positions of a page.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from glassformer.core.triton_kernels import next_power_of_2
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
NO_NORM = Norm()
MOST_INPUTS = 4096  # that a warp can keep of a row of weights
FEW_INPUTS = 1024  # of which it can keep `TIMES` rows

# Sizes that change how fast it is, and the order of sums: LANES, SPAN, INPUTS, TILE_INPUTS and PARTS.
LANES = 64  # positions that are looked at together
SPAN: dict[Products, int] = {"vectors": 64, "tiles": 128}  # positions that one program looks at
OUTPUTS, INPUTS = 2, 128  # of a tile of weights, vectors; as many warps as outputs
MANY_OUTPUTS, TIMES = 1 << 14, 4  # from so many on, of the scores, a warp has so many rows of weights
# The same, tiles, by how many texts are written at once: rows of x, and of weights, that a tile has
FEW_ROWS, FEW_TILE, MANY_TILE = 16, (16, 32), (64, 16)
TILE_INPUTS = {2: 128, 4: 64}  # by bytes of a number
SCORE_OUTPUTS = 64  # of a tile of scores
TILE_STAGES = 4  # tiles of weights that are under way at once
PARTS = 4  # into which the sums of the narrow outputs of tiles are divided


class Walk:
    """A model's kernels, and the memory that they work on."""

    def __init__(self, weights: Weights, rows: int, pages: int, size: int, kind: Products, texts: int):
        """Room for so many rows at once, and for `pages` pages of this size, to write so many texts."""
        self.weights, self._size = weights, size
        w, device = weights, weights.embedding.device
        self._tiled = kind == "tiles"
        # Kernels that begin early: on Hopper cards and newer.
        early = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        self._early: dict[str, Any] = {"EARLY": early, **({"launch_pdl": True} if early else {})}
        between = w.dtype if self._tiled else torch.float32  # what products read
        self._span, self._tile = (
            SPAN[kind],
            FEW_TILE if texts <= FEW_ROWS or w.dtype == torch.float32 else MANY_TILE,
        )
        spans = -(-w.context // self._span)

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

    def read(self, R: int, tokens: Tensor, positions: Tensor, tables: Tensor) -> None:
        """R rows through all layers: their keys and values are kept, the stream stands where it ends."""
        w = self.weights
        embed_kernel[(R,)](
            self._x,
            tokens,
            positions,
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
            self._layer(R, i, layer, norm, positions, tables)

    def score(self, R: int, picks: Tensor) -> None:
        """Scores of the R rows that `picks` names."""
        norm, matrix = self.weights.norm, self.weights.unembedding
        if self._tiled:
            self._join(R, norm, picks=picks)
            self._by_tiles(R, self._h, matrix, self.scores)
        else:
            self._by_vectors(R, self._x, matrix, self.scores, norm=norm, picks=picks)

    def _layer(self, R: int, i: int, layer: Layer, after: Norm, positions: Tensor, tables: Tensor) -> None:
        """One layer; `after` is the norm that the next one reads through."""
        act = self.weights.activation
        if not self._tiled:
            self._by_vectors(R, self._x, layer.qkv, self._qkv, norm=layer.attention_norm)
            self._attend(R, i, layer.qk_norm, positions, tables)
            self._by_vectors(R, self._z, layer.out, self._x, "add")
            self._by_vectors(R, self._x, layer.up, self._units, act, norm=layer.mlp_norm)
            self._by_vectors(R, self._units, layer.down, self._x, "add")
            return
        self._by_tiles(R, self._h, layer.qkv, self._qkv)
        self._attend(R, i, layer.qk_norm, positions, tables)
        self._by_tiles(R, self._z, layer.out, self._parts, "part")
        self._join(R, layer.mlp_norm, layer.out)
        self._by_tiles(R, self._h, layer.up, self._units, act)
        self._by_tiles(R, self._units, layer.down, self._parts, "part")
        self._join(R, after, layer.down)

    def _attend(self, R: int, i: int, norm: Norm, positions: Tensor, tables: Tensor) -> None:
        w, keys, values = self.weights, self.keys[i], self.values[i]
        sizes: dict[str, Any] = {
            "H": w.heads,
            "K": w.kv_heads,
            "D": w.head_width,
            "E": w.value_width,
            "P": self._size,
            "TABLE": tables.shape[1],
        }
        heads_kernel[(R, w.heads + 2 * w.kv_heads)](
            self._qkv,
            positions,
            tables,
            norm.gamma,
            norm.beta,
            norm.eps,
            w.cos,
            w.sin,
            w.score_scale,
            self._q,
            keys,
            values,
            **sizes,
            BLOCK=next_power_of_2(max(w.head_width, w.value_width)),
            NORM=norm.kind,
            num_warps=1,
            **self._early,
        )
        spans = self._found.shape[2]
        attend_kernel[(R, w.heads, spans)](
            self._q,
            keys,
            values,
            positions,
            tables,
            w.slopes,
            self._z,
            self._found,
            self._arrived,
            **sizes,
            BD=next_power_of_2(w.head_width),
            BE=next_power_of_2(w.value_width),
            WINDOW=w.window,
            SPAN=self._span,
            LANES=LANES,
            SPANS=spans,
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
    ) -> None:
        N, K = out.shape[-1], x.shape[-1]
        times = TIMES if N >= MANY_OUTPUTS and K <= FEW_INPUTS else 1
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
            **self._early,
        )

    def _by_tiles(self, R: int, h: Tensor, matrix: Matrix, out: Tensor, finish: str = "store") -> None:
        N, K = out.shape[-1], h.shape[-1]
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
