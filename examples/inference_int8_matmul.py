"""A product of bytes whose number of rows is known at execution: one primitive for every batch.

src is u8 with a zero point, weights are s8 with a scale for each output channel, and dst is u8
again, behind a ReLU. Scales and zero points are arguments of an execution: what a primitive is made
for says only that there are such, and along which dimensions they vary.

    real = scale * (stored - zero point)
"""

import numpy as np

import dnnl
from dnnl import RUNTIME_DIM, Arg

K, N = 96, 1000
COLUMNS = 1 << 1  # dimension 1 of weights (K, N)
engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)


def scalar(value: float, kind: type) -> dnnl.Memory:
    """One scale or zero point for a whole tensor."""
    return dnnl.Memory.from_numpy(np.array([value], kind))


def made() -> dnnl.PrimitiveDesc:
    """The product, with the number of rows left open and the layout of the weights too."""
    attr = dnnl.PrimitiveAttr()
    attr.set_scales(Arg.SRC)
    attr.set_scales(Arg.WEIGHTS, mask=COLUMNS)
    attr.set_scales(Arg.DST)
    attr.set_zero_points(Arg.SRC)
    attr.set_zero_points(Arg.DST)
    attr.post_ops.append_eltwise("eltwise_relu")
    product = dnnl.MatmulDesc(
        dnnl.MemoryDesc((RUNTIME_DIM, K), "u8", (K, 1)),
        dnnl.MemoryDesc((K, N), "s8", "any"),
        dnnl.MemoryDesc((RUNTIME_DIM, N), "u8", (N, 1)),
    )
    return dnnl.PrimitiveDesc(product, engine, attr)


pd = made()
primitive = dnnl.Primitive(pd)
print("implementation", pd.impl_info, "weights", pd.weights_desc)

# The weights are quantized once, by a reorder into the layout that the product asked for.
weights = random.standard_normal((K, N), np.float32)
scales = np.abs(weights).max(axis=0) / np.float32(127)
quantize = dnnl.PrimitiveAttr()
quantize.set_scales(Arg.DST, mask=COLUMNS)
given, packed = dnnl.Memory.from_numpy(weights), dnnl.Memory(pd.weights_desc, engine)
reorder = dnnl.ReorderDesc(given.desc, packed.desc)
dnnl.Primitive(dnnl.PrimitiveDesc(reorder, engine, quantize))(
    stream,
    {Arg.SRC: given, Arg.DST: packed, Arg.SCALES | Arg.DST: dnnl.Memory.from_numpy(scales)},
)

SRC_SCALE, SRC_ZERO, DST_SCALE, DST_ZERO = 0.02, 121, 0.1, 7
parameters = {
    Arg.SCALES | Arg.SRC: scalar(SRC_SCALE, np.float32),
    Arg.SCALES | Arg.WEIGHTS: dnnl.Memory.from_numpy(scales),
    Arg.SCALES | Arg.DST: scalar(DST_SCALE, np.float32),
    Arg.ZERO_POINTS | Arg.SRC: scalar(SRC_ZERO, np.int32),
    Arg.ZERO_POINTS | Arg.DST: scalar(DST_ZERO, np.int32),
}
for rows in (1, 100, 7):
    stored = random.integers(0, 256, (rows, K), np.uint8)
    dst = dnnl.Memory(dnnl.MemoryDesc((rows, N), "u8"), engine)
    src = dnnl.Memory.from_numpy(stored)
    primitive(stream, {Arg.SRC: src, Arg.WEIGHTS: packed, Arg.DST: dst, **parameters})

    # What was computed, in exact integers up to the scales.
    sums = (stored.astype(np.int64) - SRC_ZERO) @ np.rint(weights / scales).astype(np.int64)
    real = np.maximum(sums * SRC_SCALE * scales, 0)
    expected = np.clip(np.rint(real / DST_SCALE) + DST_ZERO, 0, 255)
    off = np.abs(dst.numpy().astype(np.int64) - expected)
    assert off.max() <= 1  # where a sum is halfway between two numbers
    # And what was lost by quantizing.
    exact = np.maximum((stored.astype(np.float64) - SRC_ZERO) * SRC_SCALE @ weights, 0)
    error = np.abs((dst.numpy().astype(np.float64) - DST_ZERO) * DST_SCALE - exact)
    inside = exact < (255 - DST_ZERO) * DST_SCALE
    print(f"{rows:3} rows: {error[inside].mean():.3f} from the product of floats on average")
