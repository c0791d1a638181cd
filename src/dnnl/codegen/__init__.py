"""Everything that turns a kernel's configuration into machine code.

``isa`` says what a target has, ``builder`` and ``vector`` write LLVM IR, ``address`` finds elements
in memory, ``nest`` and ``brgemm`` are the two kernel generators, ``epilogue`` finishes what both
compute, and ``jit`` compiles and caches the result.
"""
