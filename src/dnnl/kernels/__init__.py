"""The kernels: a file each, with ``configure`` (plan or refuse) and ``build`` (generate code).

``configure`` returns a frozen configuration or a refusal; ``build(conf, isa)`` turns the
configuration into LLVM IR.
"""
