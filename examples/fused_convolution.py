"""A convolution with a residual connection and an activation in one kernel.

Layouts are left open (``any``): the primitive description says which ones it wants, and tensors are
brought into them once. The sum reads what dst holds before the execution.
"""

import numpy as np

import dnnl
from dnnl import Arg

engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)

src = random.standard_normal((1, 64, 28, 28), np.float32)
weights = random.standard_normal((128, 64, 3, 3), np.float32) / 24
bias = random.standard_normal(128, np.float32)
residual = random.standard_normal((1, 128, 28, 28), np.float32)


def open_layout(array: np.ndarray) -> dnnl.MemoryDesc:
    """The tensor's dims and type, its layout left to the primitive."""
    return dnnl.MemoryDesc(array.shape, "f32", "any")


attr = dnnl.PrimitiveAttr()
attr.post_ops.append_sum()
attr.post_ops.append_eltwise("eltwise_relu")

desc = dnnl.ConvolutionDesc.forward(
    "forward_inference",
    "convolution_direct",
    open_layout(src),
    open_layout(weights),
    open_layout(residual),
    strides=(1, 1),
    padding_l=(1, 1),
    bias_desc=open_layout(bias),
)
pd = dnnl.PrimitiveDesc(desc, engine, attr)
print("implementation", pd.impl_info)
for name in ("src", "weights", "dst"):
    print(f"{name:8}", getattr(pd, f"{name}_desc"))


def laid_out(array: np.ndarray, wanted: dnnl.MemoryDesc) -> dnnl.Memory:
    """The array in the layout that the primitive asked for."""
    memory = dnnl.Memory.from_numpy(array)
    return memory if memory.desc == wanted else memory.reorder_to(wanted)


args = {
    Arg.SRC: laid_out(src, pd.src_desc),
    Arg.WEIGHTS: laid_out(weights, pd.weights_desc),
    Arg.BIAS: laid_out(bias, pd.bias_desc),
    Arg.DST: laid_out(residual, pd.dst_desc).reorder_to(pd.dst_desc),
}
dnnl.Primitive(pd).execute(stream, args)
result = args[Arg.DST].numpy()

# The same in NumPy, for one output pixel.
window = src[0, :, 4:7, 9:12]
expected = (weights * window).sum(axis=(1, 2, 3)) + bias + residual[0, :, 5, 10]
assert np.allclose(result[0, :, 5, 10], np.maximum(expected, 0), atol=1e-4)
print("one pixel checked against NumPy")
