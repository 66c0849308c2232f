"""A GPT on one page. Read this first: the rest of this folder is this model, made faster and more general.

                                one block, L of them in a row
                    ┌───────────────────────────┐      ┌─────────────────────┐
    ids ──► embed ──┤                           + ─────┤                     + ── … ──► norm ──► logits
                    └──► norm ──► attention ────┘      └──► norm ──► MLP ────┘

A token becomes a vector, and the vector travels along the stream from left to right. Each layer reads the
stream, computes, and adds its result to it. Attention is the only place where positions exchange anything;
the mask lets each look only back, so every position can learn to predict the token that follows it.

Letters: B batch, T positions, C width of the stream, H heads, D head width (C = H·D), V vocabulary, L layers.
This is GPT-2 (Radford et al., 2019): learned positions, norms before the layers, one matrix for embedding
and unembedding. The tests hold the project's own decoder to this file: logits, gradients, written tokens.
"""

from math import inf, pi, sqrt

import torch
from torch import Tensor, nn


class Norm(nn.Module):
    """Each vector to mean 0 and variance 1, then stretched and shifted by what was learned."""

    def __init__(self, C: int):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(C)), nn.Parameter(torch.zeros(C))

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(dim=-1, keepdim=True)  # (B, T, C)
        variance = x.square().mean(dim=-1, keepdim=True)  # (B, T, 1)
        return self.gain * x / (variance + 1e-5).sqrt() + self.shift  # (B, T, C)


class Attention(nn.Module):
    """softmax(QKᵀ/√D)V in H heads: each position asks a query, and mixes the values whose keys answer it."""

    def __init__(self, C: int, H: int):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(C, C), nn.Linear(C, C), nn.Linear(C, C)
        self.out = nn.Linear(C, C)
        self.heads = H

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        H, D = self.heads, C // self.heads
        q = self.query(x).view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        k = self.key(x).view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        v = self.value(x).view(B, T, H, D).transpose(1, 2)  # (B, H, T, D)
        scores = q @ k.transpose(-2, -1) / sqrt(D)  # (B, H, T, T), query by key; √D keeps their variance at 1
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)  # (T, T), True: key after query
        weights = scores.masked_fill(future, -inf).softmax(dim=-1)  # (B, H, T, T), each row sums to 1
        z = (weights @ v).transpose(1, 2).reshape(B, T, C)  # (B, T, C), the heads side by side
        return self.out(z)  # (B, T, C)


class MLP(nn.Module):
    """Works on each position by itself: four times as wide, a bend, and back."""

    def __init__(self, C: int):
        super().__init__()
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)  # (B, T, 4C)
        x = 0.5 * x * (1 + torch.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))  # (B, T, 4C), GELU
        return self.down(x)  # (B, T, C)


class Block(nn.Module):
    def __init__(self, C: int, H: int):
        super().__init__()
        self.attention_norm, self.attention = Norm(C), Attention(C, H)
        self.mlp_norm, self.mlp = Norm(C), MLP(C)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))  # (B, T, C)
        return x + self.mlp(self.mlp_norm(x))  # (B, T, C)


class PlainGPT(nn.Module):
    def __init__(self, vocab: int, context: int, layers: int, heads: int, width: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = Norm(width)
        for name, p in self.named_parameters():  # small at first, so that no token is preferred yet
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, ids: Tensor) -> Tensor:
        """Of each token of ids (B, T), a score for every token that may follow it: (B, T, V)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]  # (B, T, C)
        for block in self.blocks:
            x = block(x)  # (B, T, C)
        return self.norm(x) @ self.tokens.weight.T  # (B, T, V), likeness to each token's vector

    def loss(self, ids: Tensor) -> Tensor:
        """The mean of −log p over every token that has one before it, in nats."""
        log_p = self(ids[:, :-1]).log_softmax(dim=-1)  # (B, T − 1, V)
        return -log_p.gather(-1, ids[:, 1:, None]).mean()  # ()

    @torch.no_grad()
    def generate(self, ids: Tensor, count: int, temperature: float = 0.0) -> Tensor:
        """Write `count` tokens after ids (B, T): at temperature 0 the likeliest, else drawn."""
        for _ in range(count):
            logits = self(ids[:, -self.positions.num_embeddings :])[:, -1]  # (B, V), after the last token
            if temperature == 0:
                new = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
            else:
                new = (logits / temperature).softmax(dim=-1).multinomial(1)  # (B, 1)
            ids = torch.cat([ids, new], dim=1)  # (B, T + 1)
        return ids
