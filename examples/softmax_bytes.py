"""Softmax that writes bytes, beside softmax and a reorder, for the 24 attentions of a BERT-base
with 12 encoders and 12 decoders. Both are measured in turns.
"""

from time import perf_counter

import numpy as np

import dnnl
from dnnl import Arg, Memory, MemoryDesc

LAYERS, HEADS, TOKENS = 24, 12, 128
engine = dnnl.Engine("cpu")
random = np.random.default_rng(1)
scores = random.standard_normal((HEADS, TOKENS, TOKENS)).astype(np.float32)

src = Memory.from_numpy(scores, engine=engine)
wide = Memory(src.desc, engine)
narrow = [Memory(MemoryDesc(scores.shape, "u8"), engine) for _ in range(2)]
scale = Memory.from_numpy(np.float32([1 / 255]), engine=engine)
attr = dnnl.PrimitiveAttr()
attr.set_scales(Arg.DST)


def softmax(dst: MemoryDesc, attr: dnnl.PrimitiveAttr | None = None) -> dnnl.Primitive:
    """Softmax of the scores along the last axis."""
    desc = dnnl.SoftmaxDesc.forward("forward_inference", "softmax_accurate", src.desc, dst, 2)
    return dnnl.Primitive(dnnl.PrimitiveDesc(desc, engine, attr))


for threads in (1, 2):
    stream = dnnl.Stream(engine, threads)
    reorder = dnnl.Primitive(
        dnnl.PrimitiveDesc(dnnl.ReorderDesc(wide.desc, narrow[0].desc), engine, attr)
    )
    args = {Arg.SRC: src, Arg.DST: wide}
    first = softmax(wide.desc).bind(stream, args)
    second = reorder.bind(stream, {Arg.SRC: wide, Arg.DST: narrow[0], Arg.SCALES | Arg.DST: scale})
    direct = softmax(narrow[1].desc, attr).bind(
        stream, {Arg.SRC: src, Arg.DST: narrow[1], Arg.SCALES | Arg.DST: scale}
    )
    best = [float("inf")] * 2
    for _ in range(200):
        for way, steps in enumerate(((first, second), (direct,))):
            started = perf_counter()
            for _ in range(LAYERS):
                for step in steps:
                    step()
            best[way] = min(best[way], perf_counter() - started)
    apart, together = (1e6 * time for time in best)
    print(
        f"{threads} threads: softmax and reorder {apart:.0f} us, softmax to u8 {together:.0f} us, "
        f"{apart / together:.2f} times as fast"
    )

apart, together = (memory.numpy().astype(int) for memory in narrow)
assert np.abs(apart - together).max() <= 1  # where a value lies half way between two bytes
print(f"{np.count_nonzero(apart != together)} of {apart.size} bytes differ, by 1")
