"""A language model's training pass by few, large kernels: the fused twin of the open pass, for a GPU.

    twin.py        the pass itself, from the parameters of the model; chosen when nobody looks inside
    fitting.py     which models it is made for, and why not others
    functions.py   its pieces, each with its gradient
    loss.py        scores into their gradient: when by a kernel
    formulas.py    what lies between the products, as the books write it
    launch.py      the same by own kernels: name for name, argument for argument;  kernels/ these, in Triton
    attention_blocks.py   how attention is divided for a GPU
    blaslt.py      products that add and bend, by the library below PyTorch's
    narrow.py      numbers of 8 bits, for some products of the forward pass (training.precision fp8)
    slots.py       where gradients of weights go;  aside.py: on a stream beside the backward pass
    rehearsal.py   kernels compiled all at once, before the first is wanted

Other products are PyTorch's. A test holds the twin by formulas to the open pass, and another each kernel to
its formula. What it never builds: q, k and v apart, attn_out, mlp_hidden before dropout, mlp_out, logits.
"""
