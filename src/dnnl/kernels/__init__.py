"""The kernels: a file each, with ``configure`` (can it be done, and how) and ``build`` (the code).

``configure`` returns a frozen configuration or a refusal; ``build(conf, isa)`` turns the
configuration into LLVM IR with one of the two generators.
"""
