"""A convolution chooses its layouts, a pooling follows, and reorders are made where these differ.

An operation that is bound by arithmetic is described with the layout ``any``, and says what it
wants. One that moves data takes the layout that is there, and its result has the same one. A tensor
is reordered at the ends, and only if its layout is not the one asked for.
"""

import numpy as np

import dnnl
from dnnl import Arg

BATCH, CHANNELS, SIZE = 2, 64, 14
engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)
image = random.standard_normal((BATCH, CHANNELS, SIZE, SIZE), np.float32)
kernel = random.standard_normal((CHANNELS, CHANNELS, 3, 3), np.float32) / 24


def undecided(*dims: int) -> dnnl.MemoryDesc:
    """A tensor whose layout the primitive may choose."""
    return dnnl.MemoryDesc(dims, "f32", "any")


def in_layout(array: np.ndarray, wanted: dnnl.MemoryDesc) -> dnnl.Memory:
    """The tensor in the layout that a primitive wants; without a copy if it is there already."""
    given = dnnl.Memory.from_numpy(array)
    if given.desc == wanted:
        return given
    print(f"reorder   {given.desc} to {wanted}")
    made = dnnl.Memory(wanted, engine)
    reorder = dnnl.Primitive(dnnl.PrimitiveDesc(dnnl.ReorderDesc(given.desc, wanted), engine))
    reorder(stream, {Arg.FROM: given, Arg.TO: made})
    return made


conv_pd = dnnl.PrimitiveDesc(
    dnnl.ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", undecided(*image.shape),
        undecided(*kernel.shape), undecided(*image.shape), strides=1, padding_l=1,
    ),
    engine,
)  # fmt: skip
pool_pd = dnnl.PrimitiveDesc(
    dnnl.PoolingDesc.forward(
        "forward_inference", "pooling_max", conv_pd.dst_desc,  # whatever that is
        undecided(BATCH, CHANNELS, SIZE // 2, SIZE // 2), strides=2, kernel=2, padding_l=0,
    ),
    engine,
)  # fmt: skip
for name, pd in (("conv", conv_pd), ("pool", pool_pd)):
    print(f"{name:8}  {pd.impl_info}: {pd.src_desc} to {pd.dst_desc}")

src, weights = in_layout(image, conv_pd.src_desc), in_layout(kernel, conv_pd.weights_desc)
between, pooled = dnnl.Memory(conv_pd.dst_desc, engine), dnnl.Memory(pool_pd.dst_desc, engine)
dnnl.Primitive(conv_pd)(stream, {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: between})
dnnl.Primitive(pool_pd)(stream, {Arg.SRC: between, Arg.DST: pooled})

# The user's layout again, whichever it was.
result = np.ascontiguousarray(pooled.numpy())

padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.float64)
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
conv = np.einsum("nchwyx,ocyx->nohw", windows, kernel, optimize=True)
expected = conv.reshape(BATCH, CHANNELS, SIZE // 2, 2, SIZE // 2, 2).max(axis=(3, 5))
assert np.allclose(result, expected, atol=1e-4)
print("checked against NumPy")
