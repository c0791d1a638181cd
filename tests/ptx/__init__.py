"""What ``ptxas`` says of the kernels for NVIDIA devices, without such a device.

``make ptx`` writes the PTX of every case of `tests/replay` and assembles it for each of
``assembler.ARCHITECTURES``. A table has the registers, spills and memory of each operation.
"""
