"""Softmax that writes bytes, compared with softmax and a reorder, for the scores of two attentions.

The f32 tensor between the two is what is saved. Where it fits into a cache that costs little; where
it does not, it is written to memory and read again.
"""

from time import perf_counter

import numpy as np

import dnnl
from dnnl import Arg, Memory, MemoryDesc

SHAPES = {(12, 128, 128): "in a cache", (96, 384, 384): "in memory"}
ROUNDS = 15
engine = dnnl.Engine("cpu")
random = np.random.default_rng(1)
scale = Memory.from_numpy(np.float32([1 / 255]), engine=engine)
attr = dnnl.PrimitiveAttr()
attr.set_scales(Arg.DST)


def softmax(src: MemoryDesc, dst: MemoryDesc, attr: dnnl.PrimitiveAttr | None) -> dnnl.Primitive:
    """Softmax along the last axis."""
    desc = dnnl.SoftmaxDesc.forward("forward_inference", "softmax_accurate", src, dst, 2)
    return dnnl.Primitive(dnnl.PrimitiveDesc(desc, engine, attr))


def compare(scores: Memory, threads: int) -> tuple[float, float]:
    """The least times in seconds of softmax with a reorder behind it, and of softmax to u8; both
    are run alternately and give the same bytes."""
    stream = dnnl.Stream(engine, threads)
    wide = Memory(scores.desc, engine)
    narrow = [Memory(scores.desc.with_data_type("u8"), engine) for _ in range(2)]
    reorder = dnnl.Primitive(
        dnnl.PrimitiveDesc(dnnl.ReorderDesc(wide.desc, narrow[0].desc), engine, attr)
    )
    scaled = {Arg.SCALES | Arg.DST: scale}
    first = softmax(scores.desc, wide.desc, None).bind(stream, {Arg.SRC: scores, Arg.DST: wide})
    second = reorder.bind(stream, {Arg.SRC: wide, Arg.DST: narrow[0], **scaled})
    direct = softmax(scores.desc, narrow[1].desc, attr).bind(
        stream, {Arg.SRC: scores, Arg.DST: narrow[1], **scaled}
    )
    best = [float("inf")] * 2
    for _ in range(ROUNDS):
        for number, steps in enumerate(((first, second), (direct,))):
            started = perf_counter()
            for step in steps:
                step()
            best[number] = min(best[number], perf_counter() - started)
    apart, at_once = (memory.numpy().astype(int) for memory in narrow)
    assert np.abs(apart - at_once).max() <= 1  # where a value is half way between two bytes
    return best[0], best[1]


for shape, where in SHAPES.items():
    scores = Memory.from_numpy(random.standard_normal(shape).astype(np.float32), engine=engine)
    for threads in (1, 2):
        apart, at_once = (1e6 * time for time in compare(scores, threads))
        print(
            f"{'x'.join(map(str, shape))}, {where}, {threads} threads: softmax and reorder "
            f"{apart:.0f} us, softmax to u8 {at_once:.0f} us, {apart / at_once:.2f} times as fast"
        )
