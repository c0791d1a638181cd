"""A product writes numbers of 8 bits with a scale for each 32 of them, and the next one reads both.

The scales are powers of two that the first execution computes, from the largest magnitude of each
group, as the microscaling formats (MX) have them. Nothing has to be known of the activations
before, and small values have their own scale next to groups of large ones.
"""

import ml_dtypes
import numpy as np

import dnnl
from dnnl import Arg, MemoryDesc

engine, random = dnnl.Engine("cpu"), np.random.default_rng(1)
rows, width, hidden = 64, 256, 1024
x = random.standard_normal((rows, width), np.float32)
x *= np.exp2(random.uniform(-9, 9, (rows, 1))).astype(np.float32)  # tokens of all sizes
up = random.standard_normal((width, hidden), np.float32)
down = random.standard_normal((hidden, width), np.float32)
stream = dnnl.Stream(engine)


def made(desc: dnnl.MatmulDesc, attr: dnnl.PrimitiveAttr, args: dict[int, dnnl.Memory]) -> None:
    """Execute one product."""
    dnnl.Primitive(dnnl.PrimitiveDesc(desc, engine, attr)).execute(stream, args)


# The first product ends in a relu, and in f8 with scales.
EVERY_DIMENSION = 0b11
first = dnnl.PrimitiveAttr()
first.set_scales(Arg.DST, EVERY_DIMENSION, (1, 32), "e8m0", "dynamic_mx")
first.post_ops.append_eltwise("eltwise_relu")
between = dnnl.Memory(MemoryDesc((rows, hidden), "f8_e4m3"), engine)
scales = dnnl.Memory(MemoryDesc((rows, hidden // 32), "e8m0"), engine)
made(
    dnnl.MatmulDesc(
        MemoryDesc((rows, width), "f32"), MemoryDesc((width, hidden), "f32"), between.desc
    ),
    first,
    {
        Arg.SRC: dnnl.Memory.from_numpy(x),
        Arg.WEIGHTS: dnnl.Memory.from_numpy(up),
        Arg.DST: between,
        Arg.SCALES | Arg.DST: scales,
    },
)
print("scales from", scales.numpy().min(), "to", scales.numpy().max())

# The second one takes the scales as those of its src.
second = dnnl.PrimitiveAttr()
second.set_scales(Arg.SRC, EVERY_DIMENSION, (1, 32), "e8m0")
weights = down.astype(ml_dtypes.float8_e4m3fn)
dst = dnnl.Memory(MemoryDesc((rows, width), "f32"), engine)
made(
    dnnl.MatmulDesc(between.desc, MemoryDesc((hidden, width), "f8_e4m3"), dst.desc),
    second,
    {
        Arg.SRC: between,
        Arg.SCALES | Arg.SRC: scales,
        Arg.WEIGHTS: dnnl.Memory.from_numpy(weights),
        Arg.DST: dst,
    },
)

exact = np.maximum(x @ up, 0)
wanted = exact @ weights.astype(np.float32)


def error(got: np.ndarray) -> float:
    """The difference of a row from what is wanted, in percent of its norm, on the mean."""
    return 100 * float(
        np.mean(np.linalg.norm(got - wanted, axis=1) / np.linalg.norm(wanted, axis=1))
    )


print(f"{error(dst.numpy()):.1f}% off the product of f32")
assert error(dst.numpy()) < 4

# One scale for the whole tensor has to hold the largest number of all.
single = exact.max() / 448
stored = (exact / single).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
print(f"{error(stored * single @ weights.astype(np.float32)):.1f}% off with a single scale")
