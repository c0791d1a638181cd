"""Products of packed weights, and the reorder that packs them."""

from __future__ import annotations

import numpy as np
import pytest

from dnnl import (
    Arg,
    InvalidArguments,
    MatmulDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.runtime.encoded import encode
from dnnl.types.encoding import Packed
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, execute
from tests.primitives.lines import judged
from tests.processor import ISAS

TYPES = [
    "u8:s8:s32", "s8:s8:f32", "u8:u8:u8", "s8:u8:bf16", "f32:s8:f32", "bf16:s8:f32", "f16:u8:f16",
]  # fmt: skip
SCALED = [
    "--dt=u8:s8:f32 --attr-scales=src:0:0.5+wei:2 --attr-zero-points=src:0:3 --dtag=ab,ba",
    "--dt=s8:s8:f32,f32:s8:f32 --attr-scales=wei:3:f32:64x1",
    "--dt=u8:s8:s8 --attr-zero-points=wei:0:3 --attr-post-ops=relu+add:f32",
]


@every_pair(
    isa=ISAS,
    types=TYPES,
    share=["0.0", "0.5", "0.9", "1.0"],
    src=["ab", "ba"],
    size=["1x150:150x70", "7x64:64x64", "40x300:300x33", "70x2100:2100x20", "3x1:1x1"],
)
def test_products(isa: str, types: str, share: str, src: str, size: str) -> None:
    given = f"--dt={types} --encoding=:packed+{share}: --stag={src} --dtag=ab --bia-dt=f32 {size}"
    assert all(conf.packing is not None for conf in judged("matmul", given, isa))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("attributes", SCALED)
def test_quantized(attributes: str, isa: str) -> None:
    line = f"{attributes} --encoding=:packed+0.5: 1x64:64x64 40x256:256x33"
    assert all(conf.packing is not None for conf in judged("matmul", line, isa))


def test_nothing_to_add_up() -> None:
    line = "--dt=u8:s8:s32 --encoding=:packed+1: --bia-dt=s32 0x3:3x4 3x0:0x4 3x1:1x0"
    assert len([*judged("matmul", line, "default")]) == 3


def weights_of(dims: tuple[int, int], kind: type = np.int8) -> np.ndarray:
    """Bytes, half of them 0."""
    rng = np.random.default_rng(dims)
    values = rng.integers(1, 100, dims) * rng.integers(0, 2, dims)
    return values.astype(kind)


def packed_like(array: np.ndarray, columns: int, group: int) -> MemoryDesc:
    """Room for the elements of an array."""
    kind = "s8" if array.dtype == np.int8 else "u8"
    return MemoryDesc.packed(array.shape, kind, int(np.count_nonzero(array)), columns, group)


@every_pair(
    isa=ISAS,
    blocks=[(16, 4), (32, 4), (8, 1), (64, 1), (6, 4)],
    layout=["ab", "ba", "BA16a64b4a"],
    weights=[((150, 70), np.int8), ((32, 8), np.uint8), ((257, 3), np.int8)],
)
def test_packing(
    layout: str, blocks: tuple[int, int], isa: str, weights: tuple[tuple[int, int], type]
) -> None:
    """The reorder writes what NumPy finds."""
    array = weights_of(*weights)
    desc = packed_like(array, *blocks)
    dense = Memory.from_numpy(array).reorder_to(layout)
    with config.override("max_cpu_isa", isa):
        made = execute(ReorderDesc(dense.desc, desc), {Arg.FROM: dense}, dst=Memory(desc, ENGINE))
    stored = int(np.count_nonzero(array))
    for number, (part, want) in enumerate(zip(made.parts, encode(desc, array), strict=True)):
        end = None if number else stored
        assert part.numpy()[:end].tolist() == want[:end].tolist()
    assert made.numpy().tolist() == array.tolist()
    assert Memory.from_numpy(made.numpy()).reorder_to(desc).numpy().tolist() == array.tolist()


def test_nothing_to_pack() -> None:
    for dims in ((0, 4), (4, 0)):
        packed = Memory(MemoryDesc.packed(dims, "s8", 5, 16, 4), ENGINE)
        packed.parts[1].numpy()[:] = 99
        desc = ReorderDesc(MemoryDesc(dims, "s8"), packed.desc)
        dense = Memory(desc.src_desc, ENGINE)
        pack = Primitive(PrimitiveDesc(desc, ENGINE))
        pack.execute(Stream(ENGINE), {Arg.FROM: dense, Arg.TO: packed})
        assert packed.numpy().shape == dims


@pytest.mark.parametrize("threads", [1, 2])
def test_more_weights_than_there_is_room_for(threads: int) -> None:
    array = weights_of((150, 70))
    capacity, desc = int(np.count_nonzero(array)), packed_like(array, 16, 4)
    array[array == 0] = 1
    memories = {Arg.FROM: Memory.from_numpy(array), Arg.TO: Memory(desc, ENGINE)}
    pack = Primitive(PrimitiveDesc(ReorderDesc(memories[Arg.FROM].desc, desc), ENGINE))
    rule = f"stores up to {capacity} elements, 10500 are nonzero"
    for run in (pack.execute, lambda *given: pack.bind(*given)()):
        with pytest.raises(InvalidArguments, match=rule):
            run(Stream(ENGINE, threads), memories)
    with pytest.raises(InvalidArguments, match="stores up to"):
        memories[Arg.TO].numpy()


@pytest.mark.parametrize("isa", ISAS)
def test_wrong_buffers_are_not_left(isa: str) -> None:
    """More bits than values, and places outside, between guard pages."""
    array = weights_of((300, 70))
    desc = MemoryDesc.packed(array.shape, "s8", int(np.count_nonzero(array)))
    src = Memory.from_numpy(np.ones((5, 300), np.uint8))
    with config.override("max_cpu_isa", isa):
        asked = MatmulDesc(src.desc, desc, MemoryDesc((5, 70), "s32"))
        packed = Memory.from_numpy(array).reorder_to(PrimitiveDesc(asked, ENGINE).weights_desc)
        chosen = MatmulDesc(src.desc, packed.desc, asked.dst_desc)
        for place in (-1, 2**40, -(2**63)):
            packed.parts[1].numpy()[:] = place
            packed.parts[2].numpy()[:] = 255
            execute(chosen, {Arg.SRC: src, Arg.WEIGHTS: packed})


def test_weights_that_others_packed() -> None:
    """Panels that were chosen for other rows or another instruction set serve as well, but not
    K groups of another size."""
    array = weights_of((300, 70))
    src = np.random.default_rng(0).integers(0, 200, (70, 300)).astype(np.uint8)
    sizes = [(columns, 4) for columns in (16, 32, 48)]
    for columns, group in sizes:
        packed = Memory.from_numpy(array).reorder_to(packed_like(array, columns, group))
        for count in (1, 70):
            some, dst = Memory.from_numpy(src[:count]), MemoryDesc((count, 70), "s32")
            desc = MatmulDesc(some.desc, packed.desc, dst)
            made = execute(desc, {Arg.SRC: some, Arg.WEIGHTS: packed})
            want = src[:count].astype(np.int32) @ array.astype(np.int32)
            assert made.numpy().tolist() == want.tolist()
    dense = MemoryDesc((5, 300), "u8")
    asked = MatmulDesc(dense, packed_like(array, 32, 1), MemoryDesc((5, 70), "s32"))
    with pytest.raises(
        Unimplemented, match=r"K groups of 1 and panels of 32 columns; .* K groups of 4"
    ):
        PrimitiveDesc(asked, ENGINE)


def test_refusals() -> None:
    packed = packed_like(weights_of((64, 32)), 16, 4)
    floats, by_half = MemoryDesc.packed((64, 32), "f32", 17), PrimitiveAttr()
    by_half.set_scales(Arg.WEIGHTS, 3, (64, 1))
    request = MemoryDesc.packed((64, 32), "s8", 17)
    src, dst = MemoryDesc((4, 64), "f32"), MemoryDesc((4, 32), "f32")
    for desc, attr, reason in (
        (MatmulDesc(src, floats, dst), None, "packed weights of f32; it takes s8 or u8"),
        (
            MatmulDesc(MemoryDesc.csr((4, 64), "f32", 3), request, dst),
            None,
            "weights may be packed",
        ),
        (ReorderDesc(MemoryDesc((64, 32), "s8"), request), None, "leaves panels open"),
        (ReorderDesc(MemoryDesc((64, 32), "f32"), packed), None, "keeps the data type"),
        (ReorderDesc(packed, MemoryDesc((64, 32), "s8")), None, "dense weights become packed"),
        (ReorderDesc(MemoryDesc((64, 32), "s8"), packed), by_half, "unsupported attribute"),
    ):
        with pytest.raises(Unimplemented, match=reason):
            PrimitiveDesc(desc, ENGINE, attr)
    for columns, group in ((3, 1), (-8, 1), (8, 0), (1024, 1)):
        with pytest.raises(InvalidArguments, match="columns"):
            Packed(1, columns, group)
