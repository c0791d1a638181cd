"""The compiler: turns the configuration of a kernel into machine code.

``isa`` describes targets and ``ir`` writes LLVM IR. ``math``, ``conversion`` and ``functions``
compute on one vector; ``memory`` addresses elements. ``nest`` and ``product`` are the two
generators of kernels. ``epilogue`` finishes the results of both. ``compile`` produces and caches
the image.
"""
