"""Training: a convolution, relu, LRN and pooling, their gradients, and an update of the weights.

Each gradient takes the primitive description of its forward pass as a hint, so that activations
and their gradients have the same layouts. The update subtracts a multiple of the gradient from the
weights, in whatever layouts the two implementations chose.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

import dnnl
from dnnl import Arg

RATE = 2e-4
engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)
forward: list[Callable[[], object]] = []
backward: list[Callable[[], object]] = []
updates: list[Callable[[], object]] = []


def undecided(*dims: int) -> dnnl.MemoryDesc:
    """A tensor whose layout the primitive may choose."""
    return dnnl.MemoryDesc(dims, "f32", "any")


def add(
    steps: list[Callable[[], object]], pd: dnnl.PrimitiveDesc, **given: dnnl.Memory
) -> dict[str, dnnl.Memory]:
    """One more step of ``pd`` with the tensors ``given`` by name; all of its tensors."""
    tensors = {Arg[name]: memory for name, memory in given.items()}
    for tensor in pd.desc.tensors:
        if tensor.argument not in tensors:
            tensors[Arg(tensor.argument)] = dnnl.Memory(tensor.desc, engine)
    steps.append(dnnl.Primitive(pd).bind(stream, tensors))
    print(f"{pd.desc.kind:12} {pd.desc.spelled_propagation:17} {pd.impl_info}")
    return {argument.name: memory for argument, memory in tensors.items()}


BATCH, TRAINING = 8, "forward_training"
CONV, RELU, LRN, POOL = (
    "convolution_direct", "eltwise_relu", "lrn_across_channels", "pooling_max",
)  # fmt: skip
image, kernel, activation = (BATCH, 3, 67, 67), (32, 3, 11, 11), (BATCH, 32, 15, 15)
pooled = BATCH, 32, 7, 7

conv_pd = dnnl.PrimitiveDesc(
    dnnl.ConvolutionDesc.forward(
        TRAINING, CONV, undecided(*image), undecided(*kernel), undecided(*activation),
        strides=4, padding_l=0, bias_desc=undecided(32),
    ),
    engine,
)  # fmt: skip
conv = add(forward, conv_pd)
relu_desc = dnnl.EltwiseDesc.forward(TRAINING, RELU, conv["DST"].desc, undecided(*activation))
relu_pd = dnnl.PrimitiveDesc(relu_desc, engine)
relu = add(forward, relu_pd, SRC=conv["DST"])
numbers = {"local_size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0}
lrn_desc = dnnl.LrnDesc.forward(TRAINING, LRN, relu["DST"].desc, undecided(*activation), **numbers)
lrn_pd = dnnl.PrimitiveDesc(lrn_desc, engine)
lrn = add(forward, lrn_pd, SRC=relu["DST"])
window = {"strides": 2, "kernel": 3, "padding_l": 0}
pool_desc = dnnl.PoolingDesc.forward(TRAINING, POOL, lrn["DST"].desc, undecided(*pooled), **window)
pool_pd = dnnl.PrimitiveDesc(pool_desc, engine)
pool = add(forward, pool_pd, SRC=lrn["DST"])

# The loss is half the sum of squares of result - target, whose gradient is result - target.
result = pool["DST"]
target = dnnl.Memory(result.desc, engine)
loss_desc = dnnl.BinaryDesc("binary_sub", result.desc, target.desc, result.desc)
loss = add(backward, dnnl.PrimitiveDesc(loss_desc, engine), SRC_0=result, SRC_1=target)

desc = dnnl.PoolingDesc.backward(POOL, undecided(*activation), loss["DST"].desc, **window)
pd = dnnl.PrimitiveDesc(desc, engine, hint=pool_pd)
gradient = add(backward, pd, DIFF_DST=loss["DST"], WORKSPACE=pool["WORKSPACE"])["DIFF_SRC"]
desc = dnnl.LrnDesc.backward(
    LRN, undecided(*activation), gradient.desc, relu["DST"].desc, **numbers
)
pd = dnnl.PrimitiveDesc(desc, engine, hint=lrn_pd)
left = {name: lrn[name] for name in ("SRC", "WORKSPACE") if name in lrn}
gradient = add(backward, pd, DIFF_DST=gradient, **left)["DIFF_SRC"]
desc = dnnl.EltwiseDesc.backward(RELU, undecided(*activation), gradient.desc, conv["DST"].desc)
pd = dnnl.PrimitiveDesc(desc, engine, hint=relu_pd)
gradient = add(backward, pd, DIFF_DST=gradient, SRC=conv["DST"])["DIFF_SRC"]
desc = dnnl.ConvolutionDesc.backward_weights(
    CONV, conv["SRC"].desc, undecided(*kernel), gradient.desc,
    strides=4, padding_l=0, diff_bias_desc=undecided(32),
)  # fmt: skip
pd = dnnl.PrimitiveDesc(desc, engine, hint=conv_pd)
conv |= add(backward, pd, DIFF_DST=gradient, SRC=conv["SRC"])
for name in ("WEIGHTS", "BIAS"):
    own, change = conv[name], conv[f"DIFF_{name}"]
    update = dnnl.SumDesc((1, -RATE), (own.desc, change.desc), own.desc)
    sources = {Arg.multiple_src(0): own, Arg.multiple_src(1): change, Arg.DST: own}
    updates.append(dnnl.Primitive(dnnl.PrimitiveDesc(update, engine)).bind(stream, sources))


def run(steps: list[Callable[[], object]]) -> float:
    """The loss after some steps."""
    for step in steps:
        step()
    return float(np.sum((result.numpy() - target.numpy()) ** 2, dtype=np.float64)) / 2


def parameters(scale: float) -> np.ndarray:
    """Weights of a gain of ``scale``."""
    values = random.standard_normal(kernel) * scale / np.sqrt(np.prod(kernel[1:]))
    return values.astype(np.float32)


# The target is what other weights make of the images.
conv["SRC"].fill(random.standard_normal(image).astype(np.float32))
conv["BIAS"].fill(np.zeros(32, np.float32))
conv["WEIGHTS"].fill(parameters(1.0))
target.fill(np.zeros(pooled, np.float32))
run(forward)
target.fill(result.numpy())
start = parameters(1.0)
conv["WEIGHTS"].fill(start)

losses = [run(forward)]
run(backward)
slope = conv["DIFF_WEIGHTS"].numpy().astype(np.float64)

# The loss changes along the gradient as fast as the gradient says.
step = 1e-3 * np.linalg.norm(start) / np.linalg.norm(slope)
around = []
for sign in (1, -1):
    conv["WEIGHTS"].fill((start + sign * step * slope).astype(np.float32))
    around.append(run(forward))
measured = (around[0] - around[1]) / (2 * step)
assert np.isclose(measured, np.sum(slope**2), rtol=0.01)

conv["WEIGHTS"].fill(start)
for _ in range(10):
    run(forward + backward + updates)
    losses.append(run(forward))
print("loss", *(f"{loss:.4g}" for loss in losses))
assert all(later < sooner for sooner, later in pairwise(losses))
