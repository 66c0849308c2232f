"""Kernels of a training pass, in Triton. formulas.py says what each computes; launch.py calls them.

None adds atomically: every sum has one order, so the same step gives the same bits. Capitals in a signature
are tensors (their first element) or numbers that are known when a kernel is compiled.
"""
