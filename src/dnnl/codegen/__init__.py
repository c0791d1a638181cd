"""Everything that turns a kernel's configuration into machine code.

``isa`` says what a target has, and ``ir`` writes LLVM IR. ``math``, ``conversion`` and
``functions`` compute on one vector; ``memory`` finds elements. ``nest`` and ``product`` are the two
generators of kernels, ``epilogue`` finishes what both compute, and ``compile`` makes and caches
the image.
"""
