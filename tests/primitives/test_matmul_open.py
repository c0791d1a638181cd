"""Products of matrices whose sizes only the execution knows: one primitive for all of them."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    InvalidArguments,
    MatmulDesc,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
    Unimplemented,
    config,
)
from dnnl.primitives.desc import Desc
from dnnl.tools.bench.verbose_line import case_tokens
from tests import test_records as records
from tests.check import check, logical, poisoned_memory, random_memory
from tests.guard import RUNS, near
from tests.primitives.harness import ENGINE, execute_all
from tests.primitives.products import some_rows
from tests.primitives.runtime_sizes import open_desc, opened, run_open, trials
from tests.processor import ISAS

R = RUNTIME_DIM
STREAM = Stream(ENGINE, 1)
ISAS = [name for name in reversed(ISAS) if name != "avx"]


def with_neighbours(desc: Desc) -> Desc:
    """The description with all dims open, and of strides those that are not 1."""

    def some(tensor: MemoryDesc) -> MemoryDesc:
        if tensor.is_zero:
            return tensor
        dims = sum(1 << dim for dim, size in enumerate(tensor.dims) if size != 1)
        strides = sum(1 << dim for dim, step in enumerate(tensor.strides) if step != 1)
        return opened(tensor, dims, strides & dims)

    assert isinstance(desc, MatmulDesc)
    fields = desc.src_desc, desc.weights_desc, desc.dst_desc, desc.bias_desc
    return MatmulDesc(*map(some, fields))


ROWS = "--stag=ab --wtag=ab --dtag=ab"
SCALES = "--attr-scales=src:0:0.5+wei:2+dst:0:2 --bia-dt=f32"
LINES = [
    "--stag=ab,ba --wtag=ab,ba --dtag=ab 35x47:47x33 3x70:70x128",
    "--stag=ab --wtag=ab --dtag=ab,ba 13x2100:2100x65 300x40:40x70 1x64:64x256 2x1:1x2",
    "--dt=bf16,u8:s8:s32,s8:s8:bf16 --stag=ab --wtag=ab,ba --dtag=ab 35x47:47x33 3x64:64x128",
    "--dt=bf16,f16,s8:u8:f32 --stag=ba --wtag=ab --dtag=ab 35x47:47x33",
    f"--dt=f64,f8_e5m2:f8_e4m3:f32,bf16:s8:bf16 {ROWS} 17x37:37x33",
    "--stag=abc,bac --wtag=acb --dtag=abc --bia-dt=f32 --bia_mask=4 5x17x33:5x33x40",
    "--stag=abc --wtag=abc --dtag=abc --bia-dt=bf16 --bia_mask=6 1x17x33:5x33x40 5x17x33:1x33x40",
    "--stag=abcd --wtag=abdc --dtag=abcd 2x3x7x16:2x1x16x9",
    f"{ROWS} --attr-post-ops=gelu_tanh+add:bf16:per_oc,prelu:per_oc+sub:f32:1:ab 35x47:47x33",
    f"{ROWS} --attr-post-ops=sum:0.5+mul:f32:per_tensor:ab+relu --bia-dt=bf16 35x47:47x33",
    f"--dt=u8:s8:u8 {ROWS} {SCALES} --attr-zero-points=src:0:3+dst:0:2 35x47:47x33",
    f"--dt=s8:s8:s8 {ROWS} {SCALES} --attr-zero-points=src:1+wei:0:1 35x47:47x33",
    f"--dt=u8:u8:f32,s8:s8:f32 {ROWS} --attr-zero-points=wei:2 20x4200:4200x40",
    f"{ROWS} 0x3:3x4 5x0:0x7 4x3:3x0",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.covers
def test_sizes_with_tails(line: str) -> None:
    """Each case on one of the instruction sets, in turn, with strides that are open and not."""
    opening = cycle((with_neighbours, open_desc, with_neighbours))
    for isa, made, how in zip(cycle(ISAS), trials(f"--matmul {line}"), opening, strict=False):
        with config.override("max_cpu_isa", isa):
            run_open(made, how(made.desc))


@some_rows
@pytest.mark.parametrize("types", ["f32", "bf16", "f32:bf16:f32", "u8:s8:f32", "s8:s8:s32"])
def test_open_rows_beside_panels(types: str, isa: str) -> None:
    """Weights of known sizes in the layout that is best for them."""
    line = f"--matmul --dt={types} --stag=ab --wtag=ab --dtag=ab --bia-dt=f32 "
    with config.override("max_cpu_isa", isa):
        for made in trials(line + "1x37:37x70 33x37:37x70 150x37:37x70"):
            own = made.desc
            assert isinstance(own, MatmulDesc)
            weights = own.weights_desc
            desc = MatmulDesc(
                opened(own.src_desc, 1, 0),
                MemoryDesc(weights.dims, weights.data_type, "any"),
                opened(own.dst_desc, 1, 0),
                own.bias_desc,
            )
            pd = PrimitiveDesc(desc, ENGINE)
            assert pd.weights_desc.inner_blocks
            packed = made.memories[Arg.WEIGHTS].reorder_to(pd.weights_desc)
            made.memories[Arg.WEIGHTS] = packed
            primitive, results = Primitive(pd), []
            for threads, at in RUNS:
                placed = {arg: near(memory, at) for arg, memory in made.memories.items()}
                primitive.execute(Stream(ENGINE, threads), placed)
                results.append(placed)
            records.judge(made, results)


def test_one_primitive_for_many_sizes() -> None:
    """Few kernels, and the sums of kernels for one size."""
    pattern = MemoryDesc((R, R), "f32", (R, 1))
    rng = np.random.default_rng(5)
    with config.override("max_cpu_isa", "avx2"):
        pd = PrimitiveDesc(MatmulDesc(pattern, pattern, pattern), ENGINE)
        primitive = Primitive(pd)
        for m, k, n in (*rng.integers(7, 90, (20, 3)).tolist(), (1, 37, 40), (0, 3, 4), (5, 0, 7)):
            src = random_memory(MemoryDesc((m, k), "f32"), ENGINE, 1, "integers")
            weights = random_memory(MemoryDesc((k, n), "f32"), ENGINE, 2, "integers")
            dst = poisoned_memory(MemoryDesc((m, n), "f32"), ENGINE)
            primitive.execute(STREAM, {Arg.SRC: src, Arg.WEIGHTS: weights, Arg.DST: dst})
            check(dst, logical(src) @ logical(weights), 0)
    assert pd.variants is not None
    # Empty, of one row, of few, of whole vectors, and weights that the small caches of tests hold.
    assert len(pd.variants.every) <= 8


def test_one_kernel_for_any_number_of_rows() -> None:
    """Rows of a server beside known weights: one kernel for few of them, one for a single row, and
    one for all others."""
    open_rows = MemoryDesc((R, 96), "f32", "ab"), MemoryDesc((R, 70), "f32", "ab")
    weights = MemoryDesc((96, 70), "f32", "any")
    pd = PrimitiveDesc(MatmulDesc(open_rows[0], weights, open_rows[1]), ENGINE)
    primitive = Primitive(pd)
    given = random_memory(MemoryDesc((96, 70), "f32"), ENGINE, 2, "integers")
    packed = given.reorder_to(pd.weights_desc)
    for m in (0, 1, 2, 3, 5, 8, 9, 13, 37, 128, 197, 512):
        src = random_memory(MemoryDesc((m, 96), "f32"), ENGINE, 1, "integers")
        dst = poisoned_memory(MemoryDesc((m, 70), "f32"), ENGINE)
        primitive.execute(STREAM, {Arg.SRC: src, Arg.WEIGHTS: packed, Arg.DST: dst})
        check(dst, logical(src) @ logical(given), 0)
    assert pd.variants is not None
    assert len(pd.variants.every) == 3


@pytest.mark.parametrize("types", ["u8:s8", "f32:s8", "f32:s4"])
def test_scales_by_groups_of_open_depths(types: str) -> None:
    """What kernels for one size compute."""
    a, b = types.split(":")
    attr = PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS, 3, (16, 1))

    def described(m: int, k: int, n: int) -> PrimitiveDesc:
        descs = MemoryDesc((m, k), a, "ab"), MemoryDesc((k, n), b, "ab")
        return PrimitiveDesc(MatmulDesc(*descs, MemoryDesc((m, n), "f32", "ab")), ENGINE, attr)

    primitive = Primitive(described(R, R, R))
    for sizes in ((37, 64, 40), (3, 32, 34), (1, 48, 66)):
        pd = described(*sizes)
        args: dict[int, Memory] = {
            arg: random_memory(pd.arg_desc(arg), ENGINE, arg, "integers")
            for arg in (Arg.SRC, Arg.WEIGHTS)
        }
        args[Arg.SCALES | Arg.WEIGHTS] = random_memory(
            pd.arg_desc(Arg.SCALES | Arg.WEIGHTS), ENGINE, 3, "integers"
        )
        results = []
        for each in (Primitive(pd), primitive):
            args[Arg.DST] = poisoned_memory(pd.dst_desc, ENGINE)
            each.execute(STREAM, args)
            results.append(args[Arg.DST].numpy())
        np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-3)


def test_what_an_execution_may_broadcast() -> None:
    """A batch, and the values of a post-op: though nothing says so before."""
    pattern = MemoryDesc((R, R, R), "f32", (R, R, 1))
    attr = PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", pattern)
    pd = PrimitiveDesc(MatmulDesc(pattern, pattern, pattern), ENGINE, attr)
    operand = Arg.post_op(0) | Arg.SRC_1
    for batch, added in (((3, 1), (3, 5, 33)), ((1, 3), (1, 1, 33)), ((3, 3), (3, 5, 1))):
        args: dict[int, Memory] = {
            Arg.SRC: random_memory(MemoryDesc((batch[0], 5, 7), "f32"), ENGINE, 1, "integers"),
            Arg.WEIGHTS: random_memory(MemoryDesc((batch[1], 7, 33), "f32"), ENGINE, 2, "integers"),
            operand: random_memory(MemoryDesc(added, "f32"), ENGINE, 3, "integers"),
        }
        want = logical(args[Arg.SRC]) @ logical(args[Arg.WEIGHTS]) + logical(args[operand])
        dst = {int(Arg.DST): poisoned_memory(MemoryDesc((3, 5, 33), "f32"), ENGINE)}
        check(execute_all(pd, args, dst)[Arg.DST], want, 0)


def test_what_does_not_fit_is_named() -> None:
    src, weights, dst = ((R, 5), (5, R), (R, R))
    descs = [MemoryDesc(dims, "f32", (R, 1)) for dims in (src, weights, dst)]
    desc = MatmulDesc(descs[0], descs[1], descs[2])
    primitive = Primitive(PrimitiveDesc(desc, ENGINE))

    def go(*dims: tuple[int, int], layout: str = "ab") -> None:
        descs = [MemoryDesc(size, "f32", layout) for size in dims]
        args = zip((Arg.SRC, Arg.WEIGHTS, Arg.DST), descs, strict=True)
        primitive.execute(STREAM, {arg: Memory(own, ENGINE) for arg, own in args})

    go((3, 5), (5, 4), (3, 4))
    with pytest.raises(InvalidArguments, match=r"SRC\]\.dims = \(3, 6\).*\(RUNTIME_DIM, 5\)"):
        go((3, 6), (5, 4), (3, 4))
    with pytest.raises(InvalidArguments, match=r"dst_desc = \(4, 4\).*is \(3, 4\)"):
        go((3, 5), (5, 4), (4, 4))
    with pytest.raises(InvalidArguments, match=r"SRC\]\.strides = \(1, 3\).*RUNTIME_DIM, 1"):
        go((3, 5), (5, 4), (3, 4), layout="ba")


def test_verbose_lines_say_what_is_open(capfd: pytest.CaptureFixture[str]) -> None:
    """Those of a creation have ``*`` for it, those of an execution become its case again."""
    made = next(trials(f"--matmul {ROWS} 20x30:30x17"))
    pattern = MemoryDesc((R, 30), "f32"), MemoryDesc((30, R), "f32"), MemoryDesc((R, R), "f32")
    with config.override("verbose", "profile_exec"):
        pd = PrimitiveDesc(MatmulDesc(*pattern), ENGINE)
        Primitive(pd).execute(STREAM, made.memories)
    assert pd.verbose_fields().endswith(",runtime_dims_masks:1:2,*x30:30x*")
    (line,) = [line for line in capfd.readouterr().out.splitlines() if ",exec," in line]
    wanted = {*ROWS.split(), "--runtime_dims_masks=1:2", "20x30:30x17"}
    assert wanted <= {*case_tokens(line)}


def test_a_src_whose_rows_are_one() -> None:
    """Its blocks begin in one place and have different numbers of rows, of which a thread may meet
    those with few first."""
    rng = np.random.default_rng(1)
    weights = rng.integers(-4, 5, (100, 700))
    primitive = Primitive(
        PrimitiveDesc(MatmulDesc(*[MemoryDesc((R, R), "f32", (R, 1))] * 3), ENGINE)
    )
    matrix = Memory.from_numpy(np.float32(weights))
    for rows, threads in 8 * ((29, 2), (29, 3), (200, 2), (29, 4), (200, 1)):
        src = rng.integers(-4, 5, (1, 100))
        one_row = MemoryDesc((rows, 100), "f32", (0, 1))
        given = {
            Arg.SRC: Memory(one_row, ENGINE, np.float32(src).view("u1").ravel()),
            Arg.WEIGHTS: matrix,
            Arg.DST: Memory(MemoryDesc((rows, 700), "f32"), ENGINE),
        }
        primitive.execute(Stream(ENGINE, threads), given)
        assert (given[Arg.DST].numpy() == (src @ weights).repeat(rows, 0)).all()


def test_what_is_refused() -> None:
    pattern = MemoryDesc((R, R), "f32", (R, 1))
    of_bool = MemoryDesc((R, R), "boolean", (R, 1))
    with pytest.raises(Unimplemented):
        PrimitiveDesc(MatmulDesc(of_bool, of_bool, pattern), ENGINE)
    with pytest.raises(InvalidArguments, match="weights_desc"):
        MatmulDesc(pattern, replace_first(pattern, 7), pattern)


def replace_first(desc: MemoryDesc, size: int) -> MemoryDesc:
    """The descriptor with another size of its first dimension."""
    return MemoryDesc((size, *desc.dims[1:]), desc.data_type, desc.strides)


@pytest.mark.parametrize("types", [("s8", "s8"), ("u8", "s8"), ("f32", "s4")])
def test_scales_by_groups_of_a_long_k(types: tuple[str, str]) -> None:
    """What is packed of one block of K fits into the memory of a thread."""
    attr = PrimitiveAttr(fpmath_mode="any") if types[0] == "f32" else PrimitiveAttr()
    attr.set_scales(Arg.WEIGHTS, 3, (32, 1))
    pattern = MemoryDesc((R, R), types[0]), MemoryDesc((R, R), types[1]), MemoryDesc((R, R), "f32")
    primitive = Primitive(PrimitiveDesc(MatmulDesc(*pattern), ENGINE, attr))
    rng = np.random.default_rng(0)
    for k in (64, 4096, 16384):
        a, b = rng.integers(0, 4, (4, k)), rng.integers(-4, 4, (k, 64))
        scales = rng.integers(1, 4, (k // 32, 64)).astype(np.float32)
        memories: dict[int, Memory] = {Arg.DST: Memory(MemoryDesc((4, 64), "f32"), ENGINE)}
        for arg, array, kind in ((Arg.SRC, a, types[0]), (Arg.WEIGHTS, b, types[1])):
            memories[arg] = Memory(MemoryDesc(array.shape, kind), ENGINE)
            memories[arg].fill(array)
        memories[Arg.SCALES | Arg.WEIGHTS] = Memory.from_numpy(scales)
        primitive.execute(Stream(ENGINE, 2), memories)
        want = a @ (b * np.repeat(scales, 32, 0)).astype(np.float64)
        np.testing.assert_array_equal(memories[Arg.DST].numpy(), want)


def test_strides_of_one_element_may_be_any() -> None:
    """Descriptors that differ in the stride of a dimension of one element are equal."""
    made = MemoryDesc((2, 1, 3), "f32", (6, 3, 1))
    given = MemoryDesc((2, 1, 3), "f32", (6, 99, 1))
    assert made == given
    weights, dst = MemoryDesc((2, 3, R), "f32", "abc"), MemoryDesc((2, 1, R), "f32", "abc")
    matmul = Primitive(PrimitiveDesc(MatmulDesc(made, weights, dst), ENGINE))
    for columns in (5, 40):
        shapes = {Arg.WEIGHTS: (2, 3, columns), Arg.DST: (2, 1, columns)}
        memories = {
            arg: Memory(MemoryDesc(own, "f32", "abc"), ENGINE) for arg, own in shapes.items()
        }
        memories[Arg.SRC] = Memory(given, ENGINE)
        rng = np.random.default_rng(columns)
        arrays = {
            arg: rng.standard_normal(memories[arg].desc.dims).astype(np.float32)
            for arg in (Arg.SRC, Arg.WEIGHTS)
        }
        for arg, array in arrays.items():
            memories[arg].fill(array)
        matmul.execute(STREAM, memories)
        STREAM.wait()
        want = arrays[Arg.SRC] @ arrays[Arg.WEIGHTS]
        np.testing.assert_allclose(logical(memories[Arg.DST]), want, rtol=1e-5, atol=1e-6)
