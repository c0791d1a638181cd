"""The head of AlexNet and a fully connected layer: a network as a list of primitives.

Weights are brought into the layouts that the primitives want once, when the network is built. An
activation behind a convolution is a post-op of it. Each primitive is bound to its memories, so that
a step of an inference is a call without arguments.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np

import dnnl
from dnnl import Arg

FORWARD = "forward_inference"
engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)
steps: list[Callable[[], object]] = []


def undecided(*dims: int) -> dnnl.MemoryDesc:
    """A tensor whose layout the primitive may choose."""
    return dnnl.MemoryDesc(dims, "f32", "any")


def in_layout(given: dnnl.Memory, wanted: dnnl.MemoryDesc) -> dnnl.Memory:
    """A constant in the layout that a primitive wants."""
    return given if given.desc == wanted else given.reorder_to(wanted)


def add(pd: dnnl.PrimitiveDesc, src: dnnl.Memory, **constants: dnnl.Memory) -> dnnl.Memory:
    """One more step, which reads ``src``, in another layout if need be; its result."""
    if src.desc != pd.src_desc:
        moved = dnnl.Memory(pd.src_desc, engine)
        reorder = dnnl.PrimitiveDesc(dnnl.ReorderDesc(src.desc, moved.desc), engine)
        steps.append(dnnl.Primitive(reorder).bind(stream, {Arg.FROM: src, Arg.TO: moved}))
        src = moved
    dst = dnnl.Memory(pd.dst_desc, engine)
    args = {Arg.SRC: src, Arg.DST: dst}
    for name, memory in constants.items():
        args[Arg[name]] = in_layout(memory, pd.arg_desc(name))
    steps.append(dnnl.Primitive(pd).bind(stream, args))
    print(f"{pd.desc.kind:14} {pd.impl_info:26} {pd.dst_desc}")
    return dst


def parameters(*dims: int) -> tuple[dnnl.Memory, dnnl.Memory]:
    """Weights of unit gain for an output of ``dims[0]`` channels, and a bias."""
    values = random.standard_normal(dims, np.float32) / np.sqrt(np.prod(dims[1:]))
    bias = random.standard_normal(dims[0], np.float32)
    return dnnl.Memory.from_numpy(values.astype(np.float32)), dnnl.Memory.from_numpy(bias)


user = dnnl.Memory.from_numpy(random.standard_normal((1, 3, 227, 227), np.float32))
relu = dnnl.PrimitiveAttr()
relu.post_ops.append_eltwise("eltwise_relu")

weights, bias = parameters(96, 3, 11, 11)
conv = dnnl.ConvolutionDesc.forward(
    FORWARD, "convolution_direct", undecided(1, 3, 227, 227), undecided(96, 3, 11, 11),
    undecided(1, 96, 55, 55), strides=4, padding_l=0, bias_desc=undecided(96),
)  # fmt: skip
activation = add(dnnl.PrimitiveDesc(conv, engine, relu), user, WEIGHTS=weights, BIAS=bias)

lrn = dnnl.LrnDesc.forward(
    FORWARD, "lrn_across_channels", activation.desc, undecided(1, 96, 55, 55),
    local_size=5, alpha=1e-4, beta=0.75, k=1.0,
)  # fmt: skip
normalized = add(dnnl.PrimitiveDesc(lrn, engine), activation)

pool = dnnl.PoolingDesc.forward(
    FORWARD, "pooling_max", normalized.desc, undecided(1, 96, 27, 27),
    strides=2, kernel=3, padding_l=0,
)  # fmt: skip
pooled = add(dnnl.PrimitiveDesc(pool, engine), normalized)

full, offset = parameters(10, 96, 27, 27)
product = dnnl.InnerProductDesc.forward(
    FORWARD, undecided(1, 96, 27, 27), undecided(10, 96, 27, 27),
    dnnl.MemoryDesc((1, 10), "f32"), bias_desc=undecided(10),
)  # fmt: skip
scores = add(dnnl.PrimitiveDesc(product, engine), pooled, WEIGHTS=full, BIAS=offset)

times = []
for _ in range(5):
    started = perf_counter()
    for step in steps:
        step()
    times.append(perf_counter() - started)
print(f"{len(steps)} primitives, {min(times) * 1e3:.3g} ms an image")

# Layer by layer in NumPy, float64.
windows = np.lib.stride_tricks.sliding_window_view(user.numpy()[0], (11, 11), axis=(1, 2))
windows = windows[:, ::4, ::4].astype(np.float64)
kernel, shift = weights.numpy().reshape(96, -1), bias.numpy()
columns = windows.transpose(0, 3, 4, 1, 2).reshape(3 * 11 * 11, 55 * 55)
layer = np.maximum(kernel @ columns + shift[:, None], 0).reshape(96, 55, 55)
squares = np.pad(layer**2, ((2, 2), (0, 0), (0, 0)))
sums = sum(squares[channel : channel + 96] for channel in range(5))
layer = layer / (1 + 1e-4 / 5 * sums) ** 0.75
layer = np.lib.stride_tricks.sliding_window_view(layer, (3, 3), axis=(1, 2))[:, ::2, ::2]
expected = full.numpy().reshape(10, -1) @ layer.max(axis=(3, 4)).reshape(-1) + offset.numpy()
assert np.allclose(scores.numpy()[0], expected, atol=1e-3)
print("checked against NumPy")
