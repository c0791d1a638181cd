"""What kernels of several operations share: accepted types, copies, scratchpads, pointwise nests,
and kernels with run-time sizes."""
