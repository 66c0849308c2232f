"""llama.cpp beside us: GPT-2's block with random weights in its own format, decoded by its own library.

python llama_worker.py '{"shape": {…}, "weights": "f32", …}'  prints one JSON object

It imports nothing of ours, so that it runs in an environment that has llama-cpp-python and gguf alone.
"""

import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def write_model(path: Path, shape: dict[str, int], weights: str) -> None:
    """A model file of the architecture gpt2, its matrices in llama.cpp's form of f32, bf16 or int8."""
    import gguf  # pyright: ignore[reportMissingImports]

    kinds = gguf.GGMLQuantizationType
    kind = {"f32": kinds.F32, "bf16": kinds.BF16, "int8": kinds.Q8_0}[weights]
    random = np.random.default_rng(0)
    C, V, T, L = shape["width"], shape["vocab"], shape["context"], shape["layers"]
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(T)
    writer.add_embedding_length(C)
    writer.add_block_count(L)
    writer.add_feed_forward_length(4 * C)
    writer.add_head_count(shape["heads"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(V)

    def matrix(name: str, rows: int, columns: int) -> None:
        x = (0.02 * random.standard_normal((rows, columns))).astype(np.float32)
        writer.add_tensor(f"{name}.weight", gguf.quantize(x, kind), raw_dtype=kind)

    def vector(name: str, size: int, value: float = 0.0) -> None:
        writer.add_tensor(name, np.full(size, value, np.float32))

    def norm(name: str) -> None:
        vector(f"{name}.weight", C, 1.0)
        vector(f"{name}.bias", C)

    matrix("token_embd", V, C)
    writer.add_tensor("position_embd.weight", (0.02 * random.standard_normal((T, C))).astype(np.float32))
    norm("output_norm")
    for i in range(L):
        for part in ("attn_norm", "ffn_norm"):
            norm(f"blk.{i}.{part}")
        for part, rows, columns in (
            ("attn_qkv", 3 * C, C),
            ("attn_output", C, C),
            ("ffn_up", 4 * C, C),
            ("ffn_down", C, 4 * C),
        ):
            matrix(f"blk.{i}.{part}", rows, columns)
            vector(f"blk.{i}.{part}.bias", rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure(task: dict[str, Any], path: Path) -> dict[str, float]:
    """Tokens a second of one greedy text, best of some."""
    import llama_cpp as llama  # pyright: ignore[reportMissingImports]

    silent = llama.llama_log_callback(lambda *_: None)  # it lives as long as the library may call it
    llama.llama_log_set(silent, ctypes.c_void_p(0))
    llama.llama_backend_init()
    options = llama.llama_context_default_params()
    options.n_ctx = task["prompt"] + task["tokens"] + 8
    options.n_threads = options.n_threads_batch = task["threads"]
    model = llama.llama_model_load_from_file(str(path).encode(), llama.llama_model_default_params())
    context = llama.llama_init_from_model(model, options)
    sampler = llama.llama_sampler_chain_init(llama.llama_sampler_chain_default_params())
    if task["top_k"]:
        llama.llama_sampler_chain_add(sampler, llama.llama_sampler_init_top_k(task["top_k"]))
        llama.llama_sampler_chain_add(sampler, llama.llama_sampler_init_dist(0))
    else:
        llama.llama_sampler_chain_add(sampler, llama.llama_sampler_init_greedy())
    best = 0.0
    for _ in range(task["repeats"]):
        llama.llama_memory_clear(llama.llama_get_memory(context), True)
        prompt = (llama.llama_token * task["prompt"])(*range(1, task["prompt"] + 1))
        llama.llama_decode(context, llama.llama_batch_get_one(prompt, task["prompt"]))
        token = llama.llama_sampler_sample(sampler, context, -1)
        began = time.perf_counter()
        for _ in range(task["tokens"]):
            one = (llama.llama_token * 1)(token)
            if llama.llama_decode(context, llama.llama_batch_get_one(one, 1)):
                raise RuntimeError("llama_decode failed")
            token = llama.llama_sampler_sample(sampler, context, -1)
        best = max(best, task["tokens"] / (time.perf_counter() - began))
    return {"tokens_per_second": best}


def main() -> None:
    task = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, task["shape"], task["weights"])
        found = measure(task, path)
    os.write(1, json.dumps(found).encode() + b"\n")
    os._exit(0)  # its library prints while it is taken down


if __name__ == "__main__":
    main()
