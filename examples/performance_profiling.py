"""Where the time goes: verbose lines of three versions of a convolution and a ReLU.

    plain     row-major tensors, two primitives
    any       the layouts that the convolution chooses, two primitives
    fused     the same, the ReLU is a post-op

Each line of the level ``profile_exec`` ends with the milliseconds of an execution. Here a function
gets the lines; ``DNNL_VERBOSE=1`` prints them of any program.
"""

from collections import defaultdict

import numpy as np

import dnnl
from dnnl import Arg

RUNS = 10
SHAPE, KERNEL = (2, 64, 56, 56), (64, 64, 3, 3)
engine = dnnl.Engine("cpu")
stream = dnnl.Stream(engine)
random = np.random.default_rng(1)
image = dnnl.Memory.from_numpy(random.standard_normal(SHAPE, np.float32))
kernel = dnnl.Memory.from_numpy(random.standard_normal(KERNEL, np.float32))


def convolve(tag: str, fused: bool) -> np.ndarray:
    """Some executions on tensors of a layout, which are brought into it before."""
    src, weights, dst = (dnnl.MemoryDesc(dims, "f32", tag) for dims in (SHAPE, KERNEL, SHAPE))
    attr = dnnl.PrimitiveAttr()
    if fused:
        attr.post_ops.append_eltwise("eltwise_relu")
    desc = dnnl.ConvolutionDesc.forward(
        "forward_inference", "convolution_direct", src, weights, dst, strides=1, padding_l=1
    )
    pd = dnnl.PrimitiveDesc(desc, engine, attr)
    result = dnnl.Memory(pd.dst_desc, engine)
    args = {
        Arg.SRC: image.reorder_to(pd.src_desc),
        Arg.WEIGHTS: kernel.reorder_to(pd.weights_desc),
        Arg.DST: result,
    }
    relu = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", pd.dst_desc, pd.dst_desc)
    activate = dnnl.Primitive(dnnl.PrimitiveDesc(relu, engine))
    primitive = dnnl.Primitive(pd)
    for _ in range(RUNS):
        primitive(stream, args)
        if not fused:
            activate(stream, {Arg.SRC: result, Arg.DST: result})  # in place
    return np.array(result.numpy())


results = {}
for name, tag, fused in (("plain", "abcd", False), ("any", "any", False), ("fused", "any", True)):
    lines: list[str] = []
    with dnnl.config.override("verbose_sink", lines.append), dnnl.config.override("verbose", "1"):
        results[name] = convolve(tag, fused)
    times = defaultdict(list)
    for line in lines:
        fields = line.split(",")
        if fields[3:4] == ["exec"]:
            times[f"{fields[5]} {fields[6]}"].append(float(fields[-1]))
    least = {kind: min(found) for kind, found in times.items()}
    parts = ", ".join(f"{kind} {ms:.3g} ms" for kind, ms in least.items())
    print(f"{name:6} {sum(least.values()):6.3g} ms: {parts}")

for name in ("any", "fused"):
    assert np.allclose(results[name], results["plain"], atol=1e-3)
