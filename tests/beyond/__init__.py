"""Running instruction sets that the processor at hand does not have.

Kernels are written for the real row. Instructions that LLVM knows by name become functions of
generic code that do the same, and the rest is compiled for the strongest set of vectors that the
processor has, which LLVM splits wider ones into. Results are those of the kernel; what LLVM would
make of it for the real processor is not tried, and neither is speed.

    python -m pytest --beyond tests/primitives/test_softmax.py

runs tests as if this machine had every row of x86-64.
"""
