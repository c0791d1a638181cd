"""Weights of a convolution become int8 in one call: scaled, blocked, and with their sums.

Each output channel has a scale of its own. The layout holds four input channels of an output
channel side by side, as instructions that multiply bytes want them. The sums behind the weights
correct what such instructions, which take unsigned bytes, make of a signed source.
"""

import numpy as np

import dnnl
from dnnl import Arg

engine = dnnl.Engine("cpu")
random = np.random.default_rng(1)
weights = random.standard_normal((64, 30, 3, 3), np.float32)
scales = np.abs(weights).max(axis=(1, 2, 3)) / np.float32(127)

PER_OUTPUT_CHANNEL = 1  # bit 0: along dimension 0 of oihw

src = dnnl.Memory.from_numpy(weights)
dst = dnnl.Memory(
    dnnl.MemoryDesc(
        weights.shape,
        "s8",
        "OIhw4i16o4i",
        compensation=dnnl.Compensation(s8s8=PER_OUTPUT_CHANNEL, zero_points=PER_OUTPUT_CHANNEL),
    ),
    engine,
)
attr = dnnl.PrimitiveAttr()
attr.set_scales(Arg.DST, mask=PER_OUTPUT_CHANNEL)
pd = dnnl.PrimitiveDesc(dnnl.ReorderDesc(src.desc, dst.desc), engine, attr)
args = {Arg.SRC: src, Arg.DST: dst, Arg.SCALES | Arg.DST: dnnl.Memory.from_numpy(scales)}
dnnl.Primitive(pd).execute(dnnl.Stream(engine), args)
print(dst.desc, dst.desc.size, "bytes")

# The weights are NumPy's, and so are the sums, which are views of the same memory.
quantized = dst.numpy().astype(np.int32)
assert np.array_equal(quantized, np.rint(weights / scales[:, None, None, None]))
sums = quantized.sum(axis=(1, 2, 3), keepdims=True)
assert np.array_equal(dst.compensation("s8s8"), -128 * sums)
assert np.array_equal(dst.compensation("zero_points"), -sums)

# What they are for: one output pixel of signed bytes, multiplied as unsigned ones.
window = random.integers(-128, 128, (1, 30, 3, 3))
unsigned = window + 128
products = (quantized * unsigned).sum(axis=(1, 2, 3)) + dst.compensation("s8s8")[:, 0, 0, 0]
assert np.array_equal(products, (quantized * window).sum(axis=(1, 2, 3)))
print("a signed source has been multiplied as an unsigned one")
