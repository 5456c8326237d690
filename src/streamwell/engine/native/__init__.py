"""The native helper: a decoder's forward pass on CPUs, in C++ over packed weights.

`csrc` is compiled when the package is built, once per instruction set; nothing of it depends on the
versions of Python or PyTorch. Where it cannot be loaded, the PyTorch decoder runs.
"""
