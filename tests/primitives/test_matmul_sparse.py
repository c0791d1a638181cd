"""Products with one sparse factor, whatever its indices say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import dnnl
from dnnl import Arg, InvalidArguments, MatmulDesc, Memory, MemoryDesc, PrimitiveDesc, config
from dnnl.reference import matmul as reference
from tests.check import check, memory_of, random_memory, random_values
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, every_isa, execute
from tests.primitives.products import attr_of, lay_out

Dims = tuple[int, int, int]
both = pytest.mark.parametrize("encoding", ["csr", "coo"])
sides = pytest.mark.parametrize("sparse", [0, 1], ids=["src", "weights"])


def factors(sizes: Dims, sparse: int, kind: str = "f32", zeros: float = 0.8) -> list[np.ndarray]:
    """src and weights of whole numbers, one of them with mostly zeros."""
    m, k, n = sizes
    made = [
        random_values(dims, kind, seed, "integers") for seed, dims in enumerate(((m, k), (k, n)))
    ]
    chance = np.random.default_rng(m + n).random(made[sparse].shape)
    made[sparse][chance < zeros] = 0
    return made


def memories(
    values: list[np.ndarray], sparse: int, encoding: str, layout: str, kind: str = "f32"
) -> dict[int, Memory]:
    """The arguments of a product."""
    given = {}
    for number, argument in enumerate((Arg.SRC, Arg.WEIGHTS)):
        if number == sparse:
            array = values[number].astype(dnnl.DataType[kind].numpy)
            given[int(argument)] = Memory.from_numpy(array, encoding)
        else:
            desc = lay_out(values[number].shape, layout).with_data_type(kind)
            given[int(argument)] = memory_of(values[number], desc, ENGINE)
    return given


def run(
    sizes: Dims,
    sparse: int,
    encoding: str,
    layout: str = "plain",
    dst: str = "plain",
    kind: str = "f32",
    bias: bool = True,
) -> None:
    values = factors(sizes, sparse, kind)
    given = memories(values, sparse, encoding, layout, kind)
    target = lay_out((sizes[0], sizes[2]), dst).with_data_type(kind)
    bias_desc = MemoryDesc((1, sizes[2]), "f32")
    added = random_values(bias_desc.dims, "f32", 7, "integers")
    desc = MatmulDesc(
        given[Arg.SRC].desc, given[Arg.WEIGHTS].desc, target, bias_desc if bias else None
    )
    if bias:
        given[int(Arg.BIAS)] = memory_of(added, bias_desc, ENGINE)
    attr = attr_of(("eltwise", "eltwise_relu", 0.5))
    want = reference.matmul(values[0], values[1], added if bias else None)
    want = np.where(want > 0, want, 0.5 * want)
    check(execute(desc, given, attr), want, reference.TOLERANCE(kind, sizes[1]))


@every_pair(
    both,
    sides,
    pytest.mark.parametrize(
        "sizes", [(5, 70, 200), (40, 30, 1), (1, 90, 6), (67, 40, 33), (3, 1, 5)]
    ),
    pytest.mark.parametrize("layout", ["plain", "reversed"]),
)
def test_sizes(sizes: Dims, sparse: int, encoding: str, layout: str) -> None:
    run(sizes, sparse, encoding, layout)


@every_pair(
    both,
    sides,
    pytest.mark.parametrize(("layout", "dst"), [("block16", "gaps"), ("part", "reversed")]),
)
def test_layouts(layout: str, dst: str, sparse: int, encoding: str) -> None:
    run((19, 33, 40), sparse, encoding, layout, dst, bias=False)


@every_pair(both, sides, pytest.mark.parametrize("kind", ["f64", "bf16", "f16", "f8_e5m2"]))
def test_types(kind: str, sparse: int, encoding: str) -> None:
    run((9, 40, 50), sparse, encoding, kind=kind)


@every_pair(every_isa, both, sides)
def test_every_isa(isa: str, encoding: str, sparse: int) -> None:
    with config.override("max_cpu_isa", isa):
        run((17, 29, 45), sparse, encoding)
        run((23, 29, 1), sparse, encoding)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@sides
def test_against_pytorch(sparse: int) -> None:
    src, weights = factors((37, 130, 70), sparse)
    given = memories([src, weights], sparse, "csr", "plain")
    dst = MemoryDesc((37, 70), "f32")
    tensors = [torch.from_numpy(array) for array in (src, weights)]
    tensors[sparse] = tensors[sparse].to_sparse_csr()
    want = torch.sparse.mm(*tensors).numpy()
    desc = MatmulDesc(given[Arg.SRC].desc, given[Arg.WEIGHTS].desc, dst)
    check(execute(desc, given), want, reference.TOLERANCE("f32", 130))


@both
@sides
def test_nothing_is_stored(encoding: str, sparse: int) -> None:
    values = factors((4, 5, 20), sparse, zeros=2)
    given = memories(values, sparse, encoding, "plain")
    assert given[(Arg.SRC, Arg.WEIGHTS)[sparse]].parts[0].desc.size == 0
    dst = MemoryDesc((4, 20), "f32")
    desc = MatmulDesc(given[Arg.SRC].desc, given[Arg.WEIGHTS].desc, dst)
    check(execute(desc, given), np.zeros((4, 20)), 0.0)


HOSTILE: dict[str, Callable[[int], object]] = {
    "huge": lambda _: 2**31 - 1,
    "negative": lambda _: -1,
    "least": lambda _: -(2**31),
    "noise": lambda n: np.random.default_rng(n).integers(-(2**31), 2**31, n),
    "falling": lambda n: np.arange(n)[::-1] * 3 - n,
}


@every_pair(
    pytest.mark.parametrize("wrong", HOSTILE),
    both,
    sides,
    pytest.mark.parametrize("columns", [1, 70]),
)
def test_no_index_leads_out_of_the_buffers(
    encoding: str, sparse: int, wrong: str, columns: int
) -> None:
    """Buffers lie between pages that nobody may touch: what is touched ends the process."""
    given = memories(factors((21, 34, columns), sparse), sparse, encoding, "plain")
    desc = MatmulDesc(
        given[Arg.SRC].desc, given[Arg.WEIGHTS].desc, MemoryDesc((21, columns), "f32")
    )
    matrix = given[(Arg.SRC, Arg.WEIGHTS)[sparse]]
    kept = [part.data.copy() for part in matrix.parts]
    for number in (1, 2):
        indices = matrix.parts[number].numpy()
        indices[...] = HOSTILE[wrong](indices.size)
        execute(desc, given)
        matrix.parts[number].data[:] = kept[number]


def test_elements_outside_of_sparse_weights_count_for_nothing() -> None:
    src, weights = factors((6, 8, 9), 1)
    given = memories([src, weights], 1, "coo", "plain")
    _, rows, columns = (part.numpy() for part in given[Arg.WEIGHTS].parts)
    weights[rows[0], columns[0]] = weights[rows[1], columns[1]] = 0
    rows[0], columns[1] = 8, -3
    desc = MatmulDesc(given[Arg.SRC].desc, given[Arg.WEIGHTS].desc, MemoryDesc((6, 9), "f32"))
    check(execute(desc, given), src @ weights, 0.0)


def test_refusals() -> None:
    csr, dense = MemoryDesc.csr((8, 8), "f32", 3), MemoryDesc((8, 8), "f32")
    quantized = dnnl.PrimitiveAttr()
    quantized.set_scales(Arg.SRC)
    for operands, attr, reason in (
        ((csr, csr, dense), None, "both sparse"),
        ((dense, dense, csr), None, "dst and bias of a sparse product are dense"),
        ((MemoryDesc.csr((8, 8), "s8", 3), dense, dense), None, "s8"),
        ((csr, dense, dense), quantized, "scales"),
        ((csr, dense.with_data_type("f64"), dense), None, "f64 and another type"),
    ):
        with pytest.raises(dnnl.Unimplemented, match=reason):
            PrimitiveDesc(MatmulDesc(*operands), ENGINE, attr)
    pd = PrimitiveDesc(MatmulDesc(csr, dense, dense), ENGINE)
    args = {
        Arg.SRC: random_memory(dense, ENGINE),
        Arg.WEIGHTS: random_memory(dense, ENGINE),
        Arg.DST: Memory(dense, ENGINE),
    }
    with pytest.raises(InvalidArguments, match=r"args\[SRC\]"):
        dnnl.Primitive(pd).execute(dnnl.Stream(ENGINE), args)
    with pytest.raises(InvalidArguments, match=r"args\[SRC\]"):
        dnnl.Primitive(pd).execute(dnnl.Stream(ENGINE), {Arg.DST: args[Arg.DST]})


def test_outputs_must_not_lie_on_indices() -> None:
    buffer = np.zeros(64, np.int32)
    csr = MemoryDesc.csr((4, 4), "f32", 4)
    src = Memory(csr, ENGINE, [np.ones(4, "f4"), buffer[:4], np.zeros(5, "i4")])
    dst = Memory(MemoryDesc((4, 4), "f32"), ENGINE, buffer[:16].view("f4"))
    weights = Memory.from_numpy(np.ones((4, 4), "f4"))
    pd = PrimitiveDesc(MatmulDesc(csr, weights.desc, dst.desc), ENGINE)
    args = {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: dst}
    with pytest.raises(InvalidArguments, match=r"share memory with SRC\.parts\[1\]"):
        dnnl.Primitive(pd).execute(dnnl.Stream(ENGINE), args)
