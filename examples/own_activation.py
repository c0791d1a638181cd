"""An activation of one's own in the kernel of a convolution, and its gradient.

The function is called once, with a traced scalar for the value; what it computes becomes part of
the kernel. Its derivative is a function of the same kind, with which any kernel can end as well.
"""

import numpy as np

import dnnl
import dnnl.math as dm
from dnnl import Arg, Memory, MemoryDesc, Primitive, PrimitiveAttr, PrimitiveDesc

engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)


def snake(x: dm.Scalar) -> dm.Scalar:
    """Smooth, and steeper than x where x is small."""
    return x + 0.25 * dm.square(dm.tanh(3 * x))


# Forward: what the convolution has computed goes through the function before it is stored.
src = Memory.from_numpy(random.standard_normal((1, 16, 28, 28), np.float32))
weights = Memory.from_numpy(random.standard_normal((32, 16, 3, 3), np.float32) / 12)
dst_desc = MemoryDesc((1, 32, 28, 28), "f32")
desc = dnnl.ConvolutionDesc.forward(
    "forward_inference", "convolution_direct", src.desc, weights.desc, dst_desc, (1, 1), (1, 1)
)
attr = PrimitiveAttr()
attr.post_ops.append_function(snake)
sums, activated = Memory(dst_desc, engine), Memory(dst_desc, engine)
for given, dst in ((None, sums), (attr, activated)):
    convolution = Primitive(PrimitiveDesc(desc, engine, given))
    convolution.execute(stream, {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: dst})

# Backward: the gradient of the sums is that of the result times the derivative, in one kernel.
attr = PrimitiveAttr()
attr.post_ops.append_function(lambda x, gradient: gradient * dm.derivative(snake)(x), dst_desc)
copy = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_linear", dst_desc, dst_desc, 1.0)
gradient = Memory.from_numpy(random.standard_normal(dst_desc.dims, np.float32))
diff_sums = Memory(dst_desc, engine)
Primitive(PrimitiveDesc(copy, engine, attr)).execute(
    stream, {Arg.SRC: sums, Arg.post_op(0) | Arg.SRC_1: gradient, Arg.DST: diff_sums}
)

x = sums.numpy().astype(np.float64)


def plain(x: np.ndarray) -> np.ndarray:
    """The function in NumPy."""
    return x + 0.25 * np.tanh(3 * x) ** 2


assert np.allclose(activated.numpy(), plain(x), atol=1e-5)
slope = (plain(x + 1e-5) - plain(x - 1e-5)) / 2e-5
assert np.allclose(diff_sums.numpy(), gradient.numpy() * slope, atol=1e-4)
print("the result and its gradient are those of NumPy and of differences")
