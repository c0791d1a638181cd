"""The steps of every program: an engine, a stream, memories, a description, a primitive.

An image goes through a ReLU. The array has the order of image files, channels last, and is not
copied: a memory descriptor says which element is where.
"""

import numpy as np

import dnnl
from dnnl import Arg

engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)

# A batch of one image of 13x13 pixels with three channels. The dims of a tensor are (N, C, H, W)
# in every layout.
n, c, h, w = 1, 3, 13, 13
pixels = np.cos(np.arange(n * h * w * c, dtype=np.float32) / 10).reshape(n, h, w, c)
desc = dnnl.MemoryDesc((n, c, h, w), np.float32, "nhwc")
src = dnnl.Memory(desc, engine, pixels.reshape(-1))  # shares the array
dst = dnnl.Memory(desc, engine)  # allocates

# What is computed, how it is done, and the primitive that does it, for any number of executions.
relu = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", src.desc, dst.desc)
pd = dnnl.PrimitiveDesc(relu, engine)
primitive = dnnl.Primitive(pd)
print("implementation", pd.impl_info)

primitive(stream, {Arg.SRC: src, Arg.DST: dst})
stream.wait()

# The logical tensor: a view, whose index is (n, c, h, w).
result = dst.numpy()
assert result.shape == (n, c, h, w)
assert np.array_equal(result, np.maximum(pixels.transpose(0, 3, 1, 2), 0))
print((result == 0).sum(), "of", result.size, "elements are 0")

# Mistakes are exceptions that say what was wrong and what works.
try:
    primitive(stream, {Arg.SRC: src})
except dnnl.InvalidArguments as error:
    print(error)
