"""``python -m tests.soak.kernels 100000``: that many different kernels in one process, and what
they leave behind."""

from __future__ import annotations

import click

from dnnl import (
    Arg,
    EltwiseDesc,
    Engine,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    Stream,
    config,
)
from tests.soak.lines import LINES

SAMPLES = 20


@click.command(help=__doc__)
@click.argument("count", type=click.IntRange(min=SAMPLES))
def main(count: int) -> None:
    config.set("cache_limit", 0)  # so that each is compiled, and the disk is left alone
    engine = Engine("cpu")
    stream = Stream(engine)
    for size in range(1, count + 1):
        desc = MemoryDesc((size,), "f32", "a")
        relu = EltwiseDesc.forward("forward_inference", "eltwise_relu", desc, desc)
        memory = Memory(desc, engine)
        primitive = Primitive(PrimitiveDesc(relu, engine))
        primitive.execute(stream, {Arg.SRC: memory, Arg.DST: memory})
        if size % (count // SAMPLES) == 0:
            state = ", ".join(f"{line.name} {line.text(line.read())}" for line in LINES)
            print(f"{size} kernels: {state}", flush=True)


if __name__ == "__main__":
    main()
