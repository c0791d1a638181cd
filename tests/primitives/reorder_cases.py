"""Reorders to draw: two layouts, two types, attributes, an instruction set; and how they are run.

A bare reorder moves any bits, so its source has special values and random ones. One with
attributes has small integers, and powers of two to multiply with, so that each step is exact in
f32: what is tested is that the right numbers meet, and no tolerance hides that they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from dnnl import (
    Arg,
    Compensation,
    DataType,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    config,
)
from dnnl.codegen.epilogue.post_ops import prelu_weights
from dnnl.reference.arrays import Array
from dnnl.reference.conversions import convert
from dnnl.reference.post_ops import apply_post_ops
from dnnl.reference.quantization import dequantize, expand, quantize
from dnnl.reference.tolerance import EXACT
from dnnl.types.kinds import Alg
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpEltwise, PostOpPrelu, PostOpSum
from dnnl.types.scales import ScaleSpec
from tests.check import (
    assert_gaps_untouched,
    assert_padding_zero,
    assert_sums,
    check,
    codes_of,
    logical,
    memory_of,
    poisoned_memory,
    random_memory,
    store_codes,
)
from tests.layout_strategies import PLAIN, STYLES, Style, descs, empty_shapes, many_dims, shapes
from tests.primitives.harness import ENGINE, execute
from tests.primitives.runtime_sizes import ALL, opened
from tests.processor import ISAS
from tests.work_items import assert_apart

TYPES = (
    "f32", "f16", "bf16", "f64", "s32", "s8", "u8", "f8_e5m2", "f8_e4m3", "e8m0", "s4", "u4",
    "f4_e2m1",
)  # fmt: skip
INTEGERS = ("s32", "s8", "u8", "s4", "u4")
SCALES = ("f32", "bf16", "f16", "e8m0", "f8_e4m3")
MASKED_SCALES = SCALES[3:]
POWERS = (0.25, 0.5, 1.0, 2.0, 4.0)

any_isa = st.sampled_from(ISAS)
any_type = st.sampled_from(TYPES)
any_shape = st.one_of(shapes(2, 4), shapes(2, 4), shapes(1, 5), shapes(0, 6), many_dims)
_seeds = st.integers(0, 2**16)
# Where a reorder has to transpose, and where it meets blocks; then all there is.
_STYLES: Sequence[tuple[Sequence[Style], Sequence[Style]]] = (
    ((PLAIN,), (PLAIN,)),
    ((PLAIN,), STYLES),
    (STYLES, (PLAIN,)),
    (STYLES, STYLES),
)


Parameter = tuple[Arg, ScaleSpec]


@dataclass(frozen=True)
class Attributes:
    """What happens on the way."""

    scales: tuple[Parameter, ...] = ()
    zero_points: tuple[Parameter, ...] = ()
    post_ops: tuple[PostOp, ...] = ()

    def attr(self) -> PrimitiveAttr:
        """As the library takes them."""
        attr = PrimitiveAttr().with_post_ops(self.post_ops)
        for arg, spec in self.scales:
            attr.set_scales(arg, spec.mask, spec.groups, spec.data_type)
        for arg, spec in self.zero_points:
            attr.set_zero_points(arg, spec.mask, spec.groups, spec.data_type)
        return attr


@dataclass(frozen=True)
class Case:
    """A reorder, the strongest instruction set that it may use, and the seed of its data.

    Of dims and strides with a bit in the masks ``runtime`` only the execution knows."""

    src: MemoryDesc
    dst: MemoryDesc
    isa: str
    seed: int
    attributes: Attributes = Attributes()
    runtime: tuple[int, int] = (0, 0)

    def execute(self, args: Mapping[int, Memory], old: Memory | None = None) -> Memory:
        """The destination, which holds poison before, or ``old``."""
        before = poisoned_memory(self.dst, ENGINE) if old is None else old
        src, dst = self.src, self.dst
        if any(self.runtime):
            src, dst = opened(src, *self.runtime), opened(dst, *self.runtime)
        desc, attr = ReorderDesc(src, dst), self.attributes.attr()
        with config.override("max_cpu_isa", self.isa):
            result = execute(desc, args, attr, before)
            primitive = Primitive(PrimitiveDesc(desc, ENGINE, attr))
        again = Memory(self.dst, ENGINE)
        again.data[:] = before.data
        assert_apart(primitive, {**args, Arg.DST: again})
        assert (again.data == result.data).all(), "another execution gives something else"
        return result


@st.composite
def bare(
    draw: st.DrawFn,
    dims: st.SearchStrategy[tuple[int, ...]] = any_shape,
    src: st.SearchStrategy[str] = any_type,
    dst: st.SearchStrategy[str] | None = None,
) -> Case:
    """Any layout into any other; into the same type where ``dst`` is None."""
    size = draw(dims)
    types = [draw(src)]
    types.append(types[0] if dst is None else draw(dst))
    return Case(*_pair(draw, size, types), draw(any_isa), draw(_seeds))


@st.composite
def with_attributes(
    draw: st.DrawFn,
    dims: st.SearchStrategy[tuple[int, ...]] = any_shape,
    dst: st.SearchStrategy[str] = any_type,
) -> Case:
    """Any layout and type into any other with scales, zero points and post-ops."""
    size = draw(dims)
    source, target = _pair(draw, size, (draw(any_type), draw(dst)))
    both = [(Arg.SRC, source), (Arg.DST, target)]
    integers = [(arg, desc) for arg, desc in both if desc.data_type.is_integer]
    attributes = Attributes(
        draw(_parameters_of(both, SCALES)),
        draw(_parameters_of(integers, INTEGERS)),
        tuple(draw(st.lists(_post_ops(target), max_size=3))),
    )
    return Case(source, target, draw(any_isa), draw(_seeds), attributes)


@st.composite
def at_run_time(draw: st.DrawFn) -> Case:
    """A bare reorder or one with attributes that is made before some sizes are known."""
    case: Case = draw(bare() | bare(dst=any_type) | with_attributes() | without_elements)
    masks = st.sampled_from((ALL, ALL, 0)) | st.integers(0, ALL)
    dims, strides = draw(masks), draw(masks)
    for entry in case.attributes.post_ops:
        if isinstance(entry, PostOpBinary):  # its shape is known, and so are the dims it has
            dims &= ~entry.mask
    plain = case.dst.with_compensation(None)  # there are no sums of weights of unknown sizes
    return replace(case, dst=plain, runtime=(dims, strides))


without_elements = bare(empty_shapes(), any_type, any_type)


def _pair(
    draw: st.DrawFn, dims: tuple[int, ...], types: Sequence[str]
) -> tuple[MemoryDesc, MemoryDesc]:
    src, dst = draw(st.sampled_from(_STYLES))
    return draw(descs(dims, types[0], src)), draw(_compensated(draw(descs(dims, types[1], dst))))


@st.composite
def _compensated(draw: st.DrawFn, desc: MemoryDesc) -> MemoryDesc:
    """Weights of s8 with sums behind them or without any."""
    masks = st.integers(0, 2**desc.ndims - 1)
    if desc.data_type is not DataType.s8:
        return desc
    s8s8, zero_points = draw(masks), draw(masks)
    return desc.with_compensation(Compensation(s8s8, zero_points) if s8s8 | zero_points else None)


@st.composite
def _parameters_of(
    draw: st.DrawFn, tensors: Sequence[tuple[Arg, MemoryDesc]], types: Sequence[str]
) -> tuple[Parameter, ...]:
    """Scales or zero points, of ``types``, for some of ``tensors``."""
    made = []
    for arg, desc in tensors:
        if draw(st.booleans()):
            mask, groups = draw(_masks(desc.dims))
            names = [name for name in types if mask or name not in MASKED_SCALES]
            made.append((arg, ScaleSpec(mask, groups, DataType[draw(st.sampled_from(names))])))
    return tuple(made)


@st.composite
def _masks(draw: st.DrawFn, dims: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """A mask, and sizes of groups in the last two dimensions if these are in the mask."""
    mask = draw(st.integers(0, 2 ** len(dims) - 1))
    last = 3 << len(dims) - 2 if len(dims) > 1 else 0
    if not last or mask & last != last or not draw(st.booleans()):
        return mask, ()
    divisors = [[k for k in range(1, size + 1) if size % k == 0] for size in dims[-2:]]
    return mask, tuple(draw(st.sampled_from(some)) for some in divisors)


@st.composite
def _post_ops(draw: st.DrawFn, dst: MemoryDesc) -> PostOp:
    """An operation that is exact for small numbers."""
    dims = dst.dims
    kind = draw(st.sampled_from(("sum", "sum", "eltwise", "binary", "prelu")))
    if kind == "sum":
        shift = draw(st.sampled_from((0, 0, 3, -2))) if dst.data_type.is_integer else 0
        return PostOpSum(draw(st.sampled_from((1.0, 0.5, -2.0))), shift)
    if kind == "eltwise":
        return draw(
            st.sampled_from(
                (
                    PostOpEltwise(Alg.eltwise_relu, 0.5),
                    PostOpEltwise(Alg.eltwise_linear, 0.5, 3.0),
                    PostOpEltwise(Alg.eltwise_clip, -2.0, 6.0),
                    PostOpEltwise(Alg.eltwise_abs),
                )
            )
        )
    mask = draw(st.integers(0, 2 ** len(dims) - 1))
    if kind == "prelu":
        return PostOpPrelu(mask)
    shape = [size if mask >> d & 1 else 1 for d, size in enumerate(dims)]
    alg = draw(st.sampled_from((Alg.binary_add, Alg.binary_mul, Alg.binary_max, Alg.binary_sub)))
    return PostOpBinary(alg, draw(descs(shape, draw(any_type))))


def run(case: Case) -> None:
    """Execute a case between guard pages, on one and on two threads, and check all of dst."""
    if case.attributes == Attributes():
        _run_bare(case)
    else:
        _run_with_attributes(case)


def _run_bare(case: Case) -> None:
    src = _memory_of_any_bits(case.src, case.seed)
    dst = case.execute({Arg.SRC: src})
    assert_padding_zero(dst)
    assert_gaps_untouched(dst)
    assert_sums(dst)
    same = _same(src, dst)
    wrong = [tuple(map(int, index)) for index in np.argwhere(~same)]
    values, got = logical(src), logical(dst)
    shown = "; ".join(f"{at}: {values[at]} gave {got[at]}" for at in wrong[:5])
    assert not wrong, f"{len(wrong)} of {same.size} elements are wrong: {shown}"


def _same(src: Memory, dst: Memory) -> NDArray[np.bool_]:
    """Where the elements of ``dst`` are those of ``src``, with the sign of zeros."""
    types = src.desc.data_type, dst.desc.data_type
    if types[0] is types[1]:
        return np.asarray(codes_of(dst) == codes_of(src))
    values, got = logical(src), logical(dst)
    want = convert(values, types[1], core="f64")
    same: NDArray[np.bool_] = got == want
    if types[1].is_integer:
        same |= np.isnan(values)  # which integer a NaN becomes is unspecified
    else:
        same &= np.signbit(got) == np.signbit(want)
        same |= np.isnan(got) & np.isnan(want)
    return same


def _memory_of_any_bits(desc: MemoryDesc, seed: int) -> Memory:
    """Numbers of many magnitudes, a quarter of the elements random bits."""
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(desc.dims) * np.exp2(rng.integers(-12, 12, desc.dims))
    memory = memory_of(numbers, desc, ENGINE)
    codes = codes_of(memory).copy()
    # What one of 4 bits holds is below 16, what a wider one holds anything.
    bits = rng.integers(0, 256, codes.nbytes, np.uint8).view(codes.dtype).reshape(codes.shape)
    if desc.data_type.bits == 4:
        bits &= 0xF
    chosen = rng.random(desc.dims) < 0.25
    codes[chosen] = bits[chosen]
    store_codes(memory, codes)
    return memory


def _run_with_attributes(case: Case) -> None:
    src = random_memory(case.src, ENGINE, case.seed, "integers")
    post_ops = case.attributes.post_ops
    sums = any(isinstance(entry, PostOpSum) for entry in post_ops)
    old = random_memory(case.dst, ENGINE, case.seed + 1, "integers") if sums else None
    args, parameters = _parameters(case)
    operands = _operands(case)
    args.update(operands)
    dst = case.execute({int(Arg.SRC): src, **args}, old)
    values = dequantize(
        logical(src), parameters[Arg.SCALES | Arg.SRC], parameters[Arg.ZERO_POINTS | Arg.SRC]
    )
    numbers = {arg: logical(memory) for arg, memory in operands.items()}
    values = apply_post_ops(values, post_ops, numbers, None if old is None else logical(old))
    values = quantize(
        values, parameters[Arg.SCALES | Arg.DST], parameters[Arg.ZERO_POINTS | Arg.DST]
    )
    check(dst, values, EXACT(case.dst.data_type))


def _parameters(case: Case) -> tuple[dict[int, Memory], dict[int, Array]]:
    """The arguments of scales and zero points, and the value of each for every element."""
    dims, rng = case.src.dims, np.random.default_rng(case.seed)
    args = {}
    full: dict[int, Array] = {}
    for flag, specs, neutral in (
        (Arg.SCALES, case.attributes.scales, 1.0),
        (Arg.ZERO_POINTS, case.attributes.zero_points, 0.0),
    ):
        full[flag | Arg.SRC] = full[flag | Arg.DST] = np.array(neutral)
        for arg, spec in specs:
            desc = spec.desc(dims)
            numbers = rng.choice(POWERS, desc.dims) if neutral else rng.integers(0, 8, desc.dims)
            args[flag | arg] = memory_of(numbers, desc, ENGINE)
            full[flag | arg] = expand(numbers, dims, spec)
    return args, full


def _operands(case: Case) -> dict[int, Memory]:
    """What the post-ops read."""
    found: dict[int, Memory] = {}
    for number, entry in enumerate(case.attributes.post_ops):
        if isinstance(entry, PostOpPrelu):
            desc = prelu_weights(entry.mask, case.dst)
            arg = Arg.post_op(number) | Arg.WEIGHTS
        elif isinstance(entry, PostOpBinary):
            desc, arg = entry.src1_desc, Arg.post_op(number) | Arg.SRC_1
        else:
            continue
        found[arg] = random_memory(desc, ENGINE, case.seed + number, "integers")
    return found
