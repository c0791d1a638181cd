"""A sparse matrix times a dense one: src by rows (CSR), of which nine elements in ten are zero."""

import numpy as np

import dnnl
from dnnl import Arg, Memory, MemoryDesc, Primitive, PrimitiveDesc

engine = dnnl.Engine("cpu")
random = np.random.default_rng(1)
pruned = random.standard_normal((300, 500), np.float32)
pruned[random.random(pruned.shape) < 0.9] = 0
dense = random.standard_normal((500, 64), np.float32)

# Memory.from_sparse takes what SciPy has, csr or coo; here an array is encoded.
src, weights = Memory.from_numpy(pruned, "csr"), Memory.from_numpy(dense)
desc = dnnl.MatmulDesc(src.desc, weights.desc, MemoryDesc((300, 64), "f32"))
pd = PrimitiveDesc(desc, engine)
dst = Memory(pd.desc.dst_desc, engine)
Primitive(pd).execute(dnnl.Stream(engine), {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: dst})

assert np.allclose(dst.numpy(), pruned @ dense, atol=1e-4)
values, columns, pointers = src.parts
print(f"{values.desc.nelems()} of {pruned.size} elements are stored")
