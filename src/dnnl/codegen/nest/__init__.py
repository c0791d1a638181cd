"""The generator of loop nests for memory-bound kernels: from axes, operands and a body on vectors
to loops, tiles, tail masks and work items."""
