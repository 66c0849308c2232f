"""A folder in Hugging Face's GPT-2 layout, read: config.json, *.safetensors, tokenizer.json.

Nothing in it is executed, and pickled weights are not opened at all. Their matrices are stored as inputs ×
outputs, ours as outputs × inputs, so each is turned.

    wte, wpe                     stack.embedding, stack.position
    h.N.ln_1, attn.c_attn        stack.blocks.N.attention_norm, attention.qkv
    h.N.attn.c_proj              stack.blocks.N.attention.out
    h.N.ln_2, mlp.c_fc, c_proj   stack.blocks.N.mlp_norm, mlp.up, mlp.down
    ln_f                         stack.norm
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glassformer.core.errors import RunError
from glassformer.core.files import read_json
from glassformer.interop.folder import refuse_no_model
from glassformer.tokenizers.load import load_tokenizer
from glassformer.tokenizers.tokenizer import Tokenizer
from glassformer.training.checkpoint.weights import load_tensors

ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
PARTS = {
    "ln_1.weight": "attention_norm.gamma",
    "ln_1.bias": "attention_norm.beta",
    "attn.c_attn.weight": "attention.qkv.weight",
    "attn.c_attn.bias": "attention.qkv.bias",
    "attn.c_proj.weight": "attention.out.weight",
    "attn.c_proj.bias": "attention.out.bias",
    "ln_2.weight": "mlp_norm.gamma",
    "ln_2.bias": "mlp_norm.beta",
    "mlp.c_fc.weight": "mlp.up.weight",
    "mlp.c_fc.bias": "mlp.up.bias",
    "mlp.c_proj.weight": "mlp.down.weight",
    "mlp.c_proj.bias": "mlp.down.bias",
}
OUTSIDE = {
    "wte.weight": "stack.embedding.weight",
    "wpe.weight": "stack.position.weight",
    "ln_f.weight": "stack.norm.gamma",
    "ln_f.bias": "stack.norm.beta",
    "lm_head.weight": "unembedding.weight",
}
TYPES = {  # of weights; smaller ones come with scales of their own, which we do not know
    torch.float64: "float64",
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
BUFFERS = ("attn.bias", "attn.masked_bias")  # masks that old files carry; ours are made


@dataclass
class ImportedModel:
    """A language model from elsewhere: its settings, its weights under our names, its tokenizer."""

    settings: dict[str, Any]
    weights: dict[str, Tensor]
    tokenizer: Tokenizer


def read_gpt2(folder: str | Path) -> ImportedModel:
    folder = Path(folder)
    refuse_no_model(folder)
    settings = gpt2_settings(_config(folder / "config.json"), folder)
    if not (folder / "tokenizer.json").is_file():
        raise RunError(
            f"{folder} has no tokenizer.json. Save the tokenizer in its fast form beside the weights."
        )
    tokenizer = load_tokenizer(folder)
    weights = _our_weights(_tensors(folder), settings, folder)
    if len(tokenizer) != settings["vocab"]:
        raise RunError(
            f"{folder}: the tokenizer has {len(tokenizer)} entries, the model's vocabulary "
            f"{settings['vocab']}; they do not belong together"
        )
    return ImportedModel(settings, weights, tokenizer)


def gpt2_settings(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Our settings for the same model; what we cannot compute as they do is refused."""

    def require(name: str, choices: tuple[Any, ...], default: Any) -> None:
        value = config.get(name, default)
        if value not in choices:
            names = ", ".join(map(repr, choices))
            raise RunError(f"{folder}/config.json: {name} is {value!r}; only {names} can be imported")

    def number(name: str, default: int | None = None) -> int:
        value = config.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 1 << 24:
            raise RunError(f"{folder}/config.json: {name} is {value!r}; expected a positive number")
        return value

    require("model_type", ("gpt2",), None)
    require("activation_function", tuple(ACTIVATIONS), "gelu_new")
    require("layer_norm_epsilon", (1e-5,), 1e-5)
    require("scale_attn_weights", (True,), True)
    require("scale_attn_by_inverse_layer_idx", (False,), False)
    require("add_cross_attention", (False,), False)
    width = number("n_embd")
    return {
        "family": "transformer",
        "layers": number("n_layer"),
        "heads": number("n_head"),
        "width": width,
        "hidden": number("n_inner", 4 * width) if config.get("n_inner") else 4 * width,
        "context": number("n_positions"),
        "vocab": number("vocab_size"),
        "norm": "layer",
        "placement": "pre",
        "activation": ACTIVATIONS[config.get("activation_function", "gelu_new")],
        "position": "learned",
        "qk_norm": False,
        "bias": True,
        "tied": bool(config.get("tie_word_embeddings", True)),
        "init": "gpt2",
    }


def _config(path: Path) -> dict[str, Any]:
    try:
        config = read_json(path, 1 << 24)
    except FileNotFoundError:
        raise RunError(f"{path.parent} has no config.json") from None
    except (ValueError, OSError) as error:
        raise RunError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(config, dict):
        raise RunError(f"{path}: expected a JSON object")
    return config


def _tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of all safetensors files of the folder."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        other = [p.name for p in (*folder.glob("*.bin"), *folder.glob("*.pt"))]
        hint = f" ({other[0]} is pickled and is not opened: save the model as safetensors)" if other else ""
        raise RunError(f"{folder} has no model*.safetensors{hint}")
    tensors: dict[str, Tensor] = {}
    places: dict[str, Path] = {}
    for path in files:
        for name, tensor in load_tensors(path).items():
            if name in tensors:
                raise RunError(f"{folder}: {name} is both in {places[name].name} and in {path.name}")
            tensors[name], places[name] = tensor, path
    return tensors


def _our_weights(tensors: dict[str, Tensor], settings: dict[str, Any], folder: Path) -> dict[str, Tensor]:
    """The tensors under our names, matrices turned; `settings` learn whether the unembedding is its own."""
    weights: dict[str, Tensor] = {}
    unknown: list[str] = []
    for name, tensor in tensors.items():
        short = name.removeprefix("transformer.")
        head, _, rest = short.partition(".")
        number, _, part = rest.partition(".")
        if short in OUTSIDE:
            ours = OUTSIDE[short]
        elif head == "h" and part in PARTS and number.isascii() and number.isdecimal():
            ours = f"stack.blocks.{int(number)}.{PARTS[part]}"
            tensor = tensor.T if tensor.ndim == 2 else tensor
        elif head == "h" and part in BUFFERS:
            continue
        else:
            unknown.append(name)
            continue
        if ours in weights:
            raise RunError(f"{folder}: {short} is there twice")
        if tensor.dtype not in TYPES:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise RunError(
                f"{folder}: {name} is of type {kind}; only {', '.join(TYPES.values())} can be read"
            )
        if not bool(tensor.isfinite().all()):
            raise RunError(f"{folder}: {name} holds values that are no finite numbers")
        weights[ours] = tensor.float().contiguous()
    if unknown:
        raise RunError(f"{folder}: tensors that a GPT-2 does not have: {', '.join(unknown[:3])}")
    if settings["tied"]:
        own = weights.pop("unembedding.weight", None)
        if own is not None and not torch.equal(own, weights.get("stack.embedding.weight", own)):
            settings["tied"] = False
            weights["unembedding.weight"] = own
    return weights
