"""Functions in the types of the elements, beside NumPy: functions, types, layouts, vectors."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dnnl.math
from dnnl import (
    Arg,
    ConcatDesc,
    ExactDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Unimplemented,
    config,
)
from dnnl.reference.arrays import f64
from dnnl.reference.exact import SPECIFICATION
from dnnl.reference.expression import evaluate, exact, is_exact
from dnnl.reference.rule import compare
from dnnl.types.dtype import DataType
from dnnl.types.expression import Function
from dnnl.types.scalar import Scalar, Trace, apply
from dnnl.types.typed import FLOATS, FUNCTIONS, INTEGERS, STEPS, TYPES
from tests.check import assert_gaps_untouched, assert_padding_zero
from tests.pairs import every_pair
from tests.primitives.harness import ENGINE, ISAS, every_isa, execute
from tests.primitives.typed import Typed, drawn

_COMPARISONS = ("equal", "greater", "greater_or_equal", "less", "less_or_equal", "not_equal")
_SHAPES = ((3, 37, 5), (3, 1, 5), (1, 37, 1))


def ordered(kinds: frozenset[DataType]) -> list[DataType]:
    return sorted(kinds, key=lambda kind: kind.value)


def computed(
    function: Any, arrays: list[Typed], kind: DataType, tags: tuple[str | None, ...] = ()
) -> Typed:
    """What the primitive makes of arrays, the layouts of which, and of dst, are ``tags``; it must
    be right by the record."""
    tags = tags or (None,) * (len(arrays) + 1)
    memories = [Memory.from_numpy(a, tag, ENGINE) for a, tag in zip(arrays, tags, strict=False)]
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    desc = ExactDesc(function, [m.desc for m in memories], MemoryDesc(shape, kind, tags[-1]))
    result = execute(desc, {Arg.multiple_src(i): memory for i, memory in enumerate(memories)})
    assert_padding_zero(result)
    assert_gaps_untouched(result)
    got = result.numpy()
    assert got.dtype == kind.numpy
    assert_right(desc, arrays, got)
    return got


def assert_right(desc: ExactDesc, arrays: list[Typed], got: Typed) -> None:
    """Equality, of all bits where elements are only chosen; where steps are approximated, what the
    record accepts."""
    want = evaluate(desc.expression, arrays)
    if not all(map(is_exact, desc.expression.steps)):
        rule = SPECIFICATION.rule(desc, Arg.DST, dict(enumerate(arrays, Arg.MULTIPLE_SRC)))
        kind = desc.dst_desc.data_type
        verdict = compare("dst", f64(got), f64(want), kind, DataType.f64, rule)
        assert not verdict.errors, verdict.lines
    elif desc.function == "where":
        bits = f"u{got.dtype.itemsize}"
        np.testing.assert_array_equal(got.view(bits), want.view(bits))
    elif got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
    else:  # of NaN there are many
        np.testing.assert_array_equal(f64(got), f64(want))


def sources(function: str, kind: DataType, seed: int) -> list[Typed]:
    signature = STEPS[FUNCTIONS[function]].signature
    kinds = [kind] * signature.sources
    if function == "where":
        kinds[0] = DataType.boolean
    shapes = (_SHAPES[seed % 3 :] + _SHAPES[: seed % 3])[: len(kinds)]
    pairs = zip(kinds, shapes, strict=True)
    return [drawn(own, shape, seed + n) for n, (own, shape) in enumerate(pairs)]


@every_isa
@pytest.mark.parametrize("function", sorted(FUNCTIONS.keys() - {"cast", "pow"}))
def test_every_type(function: str, isa: str) -> None:
    row = STEPS[FUNCTIONS[function]]
    kinds = ordered(row.allowed)
    # One of the floats each, or a third of all types; random functions have the others.
    apart = len(kinds) if row.allowed <= FLOATS else 3
    kinds = kinds[(ISAS.index(isa) + len(function)) % apart :: apart]
    with config.override("max_cpu_isa", isa):
        for seed, kind in enumerate(kinds):
            dst = DataType.boolean if function in _COMPARISONS else kind
            computed(function, sources(function, kind, seed), dst)


@every_isa
@pytest.mark.parametrize("dst", ordered(TYPES), ids=str)
def test_every_conversion(dst: DataType, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for seed, src in enumerate(ordered(TYPES)[ISAS.index(isa) % 2 :: 2]):
            computed("cast", [drawn(src, (3, 41), seed)], dst)


@every_isa
@pytest.mark.parametrize("dst", ordered(TYPES), ids=str)
def test_every_view(dst: DataType, isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for seed, src in enumerate(ordered(TYPES)):
            if src.bits == dst.bits:
                array = drawn(src, (3, 41), seed)
                want = array != 0 if dst is DataType.boolean else array.view(dst.numpy)
                got = computed(lambda x: x.view(dst), [array], dst)
                np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize(("base", "exponent"), list(itertools.product(ordered(INTEGERS), repeat=2)))
def test_powers(base: DataType, exponent: DataType) -> None:
    arrays = [drawn(base, (5, 33), 1), drawn(exponent, (1, 33), 2)]
    computed("pow", arrays, base)


@every_pair(
    isa=ISAS,
    kind=["s8", "u16", "s64"],
    tags=[("nchw", "nhwc", "nChw16c"), ("nhwc", "nChw8c", "nchw"), ("nChw16c", "dcba", "nhwc")],
)
def test_layouts(tags: tuple[str, ...], kind: str, isa: str) -> None:
    arrays = [drawn(DataType[kind], (2, 19, 3, 5), seed) for seed in (1, 2)]
    with config.override("max_cpu_isa", isa):
        computed("div", arrays, DataType[kind], tags)
        computed("less_or_equal", arrays, DataType.boolean, tags)
        computed("cast", arrays[:1], DataType.f32, tags[1:])


@every_isa
@pytest.mark.parametrize("kind", [str(kind) for kind in ordered(INTEGERS)])
def test_quotients_beside_whole_ones(kind: str, isa: str) -> None:
    """Those that a float with too few digits would round to the next integer."""
    data_type = DataType[kind]
    with config.override("max_cpu_isa", isa):
        if data_type.bits == 8:
            every = np.arange(256).astype(data_type.numpy)
            sides = [every[:, None], every[None]]
        else:
            divisor, factor = (drawn(data_type, (64, 257), seed) for seed in (7, 8))
            steps = np.arange(-1, 2).reshape(3, 1, 1).astype(data_type.numpy)
            with np.errstate(over="ignore", divide="ignore"):
                factor = factor // np.where(divisor == 0, 1, divisor)  # products that fit the type
                sides = [divisor * factor + steps, divisor[None]]
        for function in ("div", "mod", "remainder"):
            computed(function, sides, data_type)


@every_isa
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_remainders_of_all_floats(kind: str, isa: str) -> None:
    """Of all exponents, denormal numbers and special ones, beside those of C and of Python."""
    data_type = DataType[kind]
    rng = np.random.default_rng(9)
    raw = rng.bytes(2 * 96 * 37 * data_type.size)
    a, b = np.frombuffer(raw, data_type.numpy).reshape(2, 96, 37)
    with np.errstate(all="ignore"):
        near = (f64(b) * rng.integers(-9, 9, b.shape)).astype(data_type.numpy)
    core = np.float64 if kind == "f64" else np.float32
    with config.override("max_cpu_isa", isa), np.errstate(all="ignore"):
        for function, peer in (("remainder", np.fmod), ("mod", np.mod)):
            for dividend in (a, near):
                got = computed(function, [dividend, b], data_type)
                want = peer(dividend.astype(core), b.astype(core)).astype(data_type.numpy)
                np.testing.assert_array_equal(f64(got), f64(want))
                zeros = f64(want) == 0
                assert (np.signbit(f64(got)) == np.signbit(f64(want)))[zeros].all()


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (1, 1, 1), (257,), (64, 129)])
def test_sizes(shape: tuple[int, ...]) -> None:
    for kind in (DataType.s8, DataType.s32, DataType.u64):
        computed("mod", [drawn(kind, shape, seed) for seed in (3, 4)], kind)


def test_a_byte_that_is_not_0_is_true() -> None:
    a, b = (np.array([0, 1, 2, 255, 2, 0], np.uint8), np.array([0, 2, 4, 1, 0, 8], np.uint8))
    arrays = [a.view(np.bool_), b.view(np.bool_)]
    whole = [a != 0, b != 0]
    for function in ("and", "or", "xor", "equal"):
        want = exact(function, whole, DataType.boolean)
        got = computed(function, arrays, DataType.boolean).view(np.uint8)
        assert (got == want).all(), function
    assert (computed("not", arrays[:1], DataType.boolean).view(np.uint8) == (a == 0)).all()
    assert (computed("cast", arrays[:1], DataType.s32) == (a != 0)).all()


def test_in_place() -> None:
    array = drawn(DataType.s64, (3, 19), 5)
    memory = Memory.from_numpy(array.copy())
    desc = ExactDesc("neg", [memory.desc], memory.desc)
    result = execute(desc, {Arg.MULTIPLE_SRC: memory}, dst=memory)
    np.testing.assert_array_equal(result.numpy(), -array)


@pytest.mark.parametrize("kind", ordered(TYPES - FLOATS), ids=str)
@pytest.mark.parametrize(
    ("src", "dst"), [("abcd", "acdb"), ("aBcd16b", "abcd"), ("dcba", "ABcd4b16a4b")]
)
def test_integers_are_moved(kind: DataType, src: str, dst: str) -> None:
    array = drawn(kind, (5, 19, 3, 7), 6)
    memory = Memory.from_numpy(array, src)
    moved = execute(ReorderDesc(memory.desc, memory.desc.with_tag(dst)), {Arg.FROM: memory})
    np.testing.assert_array_equal(moved.numpy(), array)
    joined = execute(
        ConcatDesc(1, [memory.desc, moved.desc]),
        {Arg.multiple_src(0): memory, Arg.multiple_src(1): moved},
    )
    np.testing.assert_array_equal(joined.numpy(), np.concatenate([array, array], 1))


def md(kind: str, *dims: int) -> MemoryDesc:
    return MemoryDesc(dims, kind)


@pytest.mark.parametrize(
    ("function", "srcs", "dst", "message"),
    [
        ("plus", [md("s32", 3)], md("s32", 3), "function = 'plus': expected one of abs, add"),
        ("add", [md("s32", 3)], md("s32", 3), "src_descs = .*: add takes 2 sources, not 1"),
        (
            "add",
            [md("s32", 3), md("s64", 3)],
            md("s32", 3),
            "dst_desc = 's32': add: all tensors have one data type; src_descs have s32, s64",
        ),
        ("less", [md("s32", 3)] * 2, md("s32", 3), "less: .* dst is boolean"),
        ("where", [md("s32", 3)] * 3, md("s32", 3), "where: the first source is boolean"),
        ("add", [md("s32", 2), md("s32", 3)], md("s32", 3), r"src_descs\[0\] = \(2,\): each"),
    ],
)
def test_wrong_descriptions(
    function: str, srcs: list[MemoryDesc], dst: MemoryDesc, message: str
) -> None:
    with pytest.raises(InvalidArguments, match=message):
        ExactDesc(function, srcs, dst)


@pytest.mark.parametrize(
    ("function", "kind"), [("shift_left", "f32"), ("neg", "boolean"), ("add", "s4"), ("sin", "f64")]
)
def test_types_that_a_function_does_not_have(function: str, kind: str) -> None:
    count = STEPS[FUNCTIONS[function]].signature.sources
    with pytest.raises(Unimplemented, match=f"unsupported data type: {kind}"):
        PrimitiveDesc(ExactDesc(function, [md(kind, 4)] * count, md(kind, 4)), ENGINE)


@pytest.mark.parametrize(("base", "exponent"), [("f32", "s32"), ("boolean", "s32")])
def test_powers_are_of_integers_or_alike(base: str, exponent: str) -> None:
    with pytest.raises(InvalidArguments, match="both are integers or have one type"):
        ExactDesc("pow", [md(base, 4), md(exponent, 4)], md(base, 4))


def test_there_are_no_post_ops() -> None:
    attr = PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_relu")
    with pytest.raises(Unimplemented, match="unsupported attribute"):
        PrimitiveDesc(ExactDesc("neg", [md("s32", 4)], md("s32", 4)), ENGINE, attr)


dm: Any = dnnl.math
CHAINS: list[tuple[Callable[..., Any], Callable[..., Any] | None, tuple[str, ...], str]] = [
    (
        lambda a, b: dm.where(a < b, a * b, a - b) + 7,
        lambda a, b: np.where(a < b, a * b, a - b) + 7,
        ("s64", "s64"),
        "s64",
    ),
    (lambda a, b: (a ^ b) % 5 << 2, None, ("u16", "u16"), "u16"),
    (lambda a, b: 1 - abs(-a) * 3 >> 1, None, ("s8", "s8"), "s8"),
    (lambda a, b: ~(a == b) & (a != 0) | (b >= 3), None, ("s32", "s32"), "boolean"),
    (
        lambda a, c: dm.where(c & (a > 0), a, 0).astype("s64") * 2**40,
        lambda a, c: np.where(c & (a > 0), a, 0).astype(np.int64) * 2**40,
        ("s32", "boolean"),
        "s64",
    ),
    (
        lambda a, b: dm.maximum(a.astype("s32"), b).astype("u8"),
        lambda a, b: np.maximum(a.astype(np.int32), b).astype(np.uint8),
        ("u64", "s32"),
        "u8",
    ),
    (
        lambda a, b: dm.where((a < 0.5) & (b <= a) | (b != 2), a, b),
        lambda a, b: np.where((a < 0.5) & (b <= a) | (b != 2), a, b),
        ("f32", "f32"),
        "f32",
    ),
    (lambda a, b: a, None, ("s16", "s16"), "s16"),
]


@every_isa
@pytest.mark.parametrize("case", CHAINS)
def test_traced_functions(case: tuple[Any, Any, tuple[str, ...], str], isa: str) -> None:
    fn, same, kinds, result = case
    drawing = enumerate(zip(kinds, ((3, 37, 5), (3, 1, 5)), strict=True))
    arrays = [drawn(DataType[kind], shape, seed) for seed, (kind, shape) in drawing]
    memories = [Memory.from_numpy(array) for array in arrays]
    desc = ExactDesc(fn, [memory.desc for memory in memories], md(result, 3, 37, 5))
    args = {Arg.multiple_src(i): memory for i, memory in enumerate(memories)}
    with config.override("max_cpu_isa", isa):
        got = execute(desc, args).numpy()
    with np.errstate(all="ignore"):
        want = (same or fn)(*arrays)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
    assert desc == ExactDesc(fn, desc.src_descs, desc.dst_desc)
    assert pickle.loads(pickle.dumps(desc)) == desc
    found = desc.operation.reference.compute(desc, dict(zip(args, arrays, strict=True)))
    np.testing.assert_array_equal(found[Arg.DST], f64(want))


@pytest.mark.parametrize(
    ("fn", "kinds", "message"),
    [
        (lambda a, b: a + b, "s32 s64", "add: all tensors have one data type, and has s32, s64"),
        (lambda a, b: a + 300, "s8 s8", "300 is no number of type s8"),
        (lambda a, b: a * 0.5, "s8 s8", "0.5 is no number of type s8"),
        (
            lambda a, b: dm.exp(a),
            "s8 s8",
            r"exp takes f16, .*, not s8 .*; x.astype\('f32'\) converts",
        ),
        (
            lambda a, b: dm.sin(a),
            "f64 f64",
            r"sin takes f16, bf16 or f32, not f64 .*; x.astype\('f32'",
        ),
        (
            lambda a, b: a << b,
            "f32 f32",
            r"shift_left takes .*, not f32 .*; x.astype\('s32'\) converts",
        ),
        (lambda a, b: dm.where(a, a, b), "s8 s8", "the first source is boolean"),
        (lambda a, b: dm.where(a < b, 1, 0), "s8 s8", "where of numbers alone has no type"),
        (
            lambda a, b: dm.derivative(lambda x: x * x)(a),
            "s8 s8",
            "a function of floats takes floats",
        ),
        (lambda a, b: a.astype("s4"), "s8 s8", "astype makes no s4"),
        (lambda a, b: a.view("s16"), "s8 s8", "both data types have the same number of bits"),
        (lambda a, b: 1, "s8 s8", "must return a traced scalar, and returned int"),
        (lambda a: a, "s8 s8", "is called with the value and 1 operands"),
        (lambda a, b: a < b, "s8 s8", "dst_desc = 's8': .* gives boolean"),
    ],
)
def test_functions_that_cannot_be_traced(fn: Any, kinds: str, message: str) -> None:
    descs = [md(kind, 3) for kind in kinds.split()]
    with pytest.raises(InvalidArguments, match=message):
        ExactDesc(fn, descs, md("s8", 3))


def test_a_traced_function_is_of_its_own_types() -> None:
    desc = ExactDesc(lambda a, b: a - b, [md("s32", 3)] * 2, md("s32", 3))
    with pytest.raises(InvalidArguments, match="is a function of 2 other sources"):
        ExactDesc(desc.function, [md("s64", 3)] * 2, md("s64", 3))
    text = str(PrimitiveDesc(desc, ENGINE))
    assert "alg:function:lambda" in text


def test_numpy_scalars_on_the_left() -> None:
    three, given = np.int32(3), [md("s32", 3)]
    first = ExactDesc(lambda a: (three % a) - (three << a) * a, given, given[0])
    same = ExactDesc(lambda a: (3 % a) - (3 << a) * a, given, given[0])
    assert first == same


class _Function:
    """A random function of sources of random types: steps of integers, of floats and casts."""

    names = sorted(STEPS)

    def __init__(self, seed: int, approximations: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        kinds = [self.one_of(ordered(TYPES)) for _ in range(3)]
        self.arrays = [self.array(kind, shape) for kind, shape in zip(kinds, _SHAPES, strict=True)]
        trace = Trace()
        self.scalars = trace.parameters(kinds)
        while len(self.scalars) < 16:
            self.grow(exact=True)
        for _ in range(approximations):
            self.scalars.append(self.of(self.one_of(ordered(FLOATS))))
            self.grow(exact=False)
        self.expression = trace.expression(3, self.scalars[-1])

    def one_of(self, values: list[Any]) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def array(self, kind: DataType, shape: tuple[int, ...]) -> Typed:
        """Small numbers, and those of all sizes."""
        small = np.abs(drawn(DataType.s8, shape, int(self.rng.integers(99)))) % 12 / 4
        wide = drawn(kind, shape, int(self.rng.integers(99)))
        return np.where(self.rng.integers(0, 3, shape) > 0, small.astype(kind.numpy), wide)

    def of(self, kind: DataType) -> Scalar:
        """A value of a type: one of the last that there are, or a number."""
        if kind in INTEGERS | FLOATS and self.rng.random() < 0.2:
            return self.scalars[0].trace.constant(float(self.rng.integers(0, 9)), kind)
        last = len(self.scalars) - 1
        return self.scalars[last - min(int(self.rng.geometric(0.4)) - 1, last)].astype(kind)

    def grow(self, *, exact: bool) -> None:
        """A further step, the sources of which are converted to a type that it takes."""
        names = self.names if exact else ["exp", "sigmoid", "tanh", "pow", "log", "sqrt", "sin"]
        row = STEPS[name := self.one_of(names)]
        kind = self.one_of(ordered(row.allowed))
        if name == "cast":
            self.scalars.append(self.of(kind))
            return
        kinds = [kind] * row.signature.sources
        if name == "where":
            kinds[0] = DataType.boolean
        step = apply(name, *map(self.of, kinds))
        if exact and not is_exact(step.step):
            return
        self.scalars.append(step)

    def check(self) -> None:
        kind = self.expression.steps[-1].data_type
        assert kind is not None
        computed(Function(self.expression), self.arrays, kind)


@every_isa
def test_random_functions(isa: str) -> None:
    with config.override("max_cpu_isa", isa):
        for seed in range(8):
            _Function(100 * seed + ISAS.index(isa)).check()
            _Function(100 * seed + ISAS.index(isa) + 50, approximations=2).check()
