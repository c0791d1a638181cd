"""Resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import partial
from math import floor, inf, trunc
from typing import Any

import numpy as np

from dnnl.codegen.epilogue.attributes import Attributes
from dnnl.codegen.ir.kernel import Refusal
from dnnl.codegen.isa import Isa
from dnnl.errors import InvalidArguments
from dnnl.kernels.windows import resampling as kernel
from dnnl.language.case import CaseValues, tensor
from dnnl.language.descriptor import IMAGE, OUTPUT, Grammar
from dnnl.language.options import ATTRIBUTES, DDT, DIR, MB, SDT, TAG, Driver, algorithm, auxiliary
from dnnl.language.values import Parts, integer, several
from dnnl.primitives.checks import check_dims, check_forward, spelled_size
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Implementation, Plan, plan_forward, plan_nest
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, Operation, Parameter, Role
from dnnl.primitives.parameters import Algorithm, Domain
from dnnl.reference.resampling import SPECIFICATION
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.interpolation import Interpolation
from dnnl.types.kinds import RUNTIME_DIM, Alg, PropKind
from dnnl.types.layout_input import read_float, read_sequence
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.taps import Taps

_MOST = 2.0**31
_ENDS = (Arg.SRC, Arg.DIFF_SRC), (Arg.DST, Arg.DIFF_DST)


@dataclass(frozen=True)
class ResamplingDesc(Desc):
    """dst = src in another size, [batch, channels, spatial...] with 1 to 3 spatial dimensions.

    Element o of the O along a dimension is at x = (o + 1/2) * I / O - 1/2 among the I of src.
    ``resampling_nearest`` takes the element of x rounded, halves away from zero,
    ``resampling_linear`` the weighted mean of the neighbours of x in each spatial dimension,
    clamped at the ends.

    ``taps``, one for each spatial dimension, say which elements are summed up instead, and by which
    weights: a `dnnl.Interpolation` by a rule, such as that of cubic interpolation, and `dnnl.Taps`
    by tables; with ``resampling_nearest`` they are one for each element.

    Arguments SRC, DST; backward DIFF_DST, DIFF_SRC. dst and the gradients may be ``any``. Dims,
    strides and offsets may be RUNTIME_DIM; tables fix the sizes that they are of.
    """

    prop_kind: PropKind
    alg_kind: Alg
    src_desc: MemoryDesc
    dst_desc: MemoryDesc
    diff_src_desc: MemoryDesc
    diff_dst_desc: MemoryDesc
    taps: tuple[Taps | Interpolation, ...] = ()

    @classmethod
    def forward(
        cls,
        prop_kind: PropKind | str,
        alg_kind: Alg | str,
        src_desc: MemoryDesc,
        dst_desc: MemoryDesc | None = None,
        factors: Sequence[float] | float | None = None,
        taps: Sequence[Taps | Interpolation] = (),
    ) -> ResamplingDesc:
        """Describe a forward computation; raises InvalidArguments where the rules are broken.

        ``factors``, one for each spatial dimension or one for all, say the dims of dst where it is
        left out: those of src times the factor, without the fraction. Beside a dst they must agree
        with its dims, as ``taps`` must.
        """
        check_forward(prop_kind)
        if factors is not None:
            dims = _resized("factors", factors, "src_desc", src_desc)
            if dst_desc is None or getattr(dst_desc, "is_zero", False):
                dst_desc = MemoryDesc(dims, src_desc.data_type, "any")
            elif isinstance(dst_desc, MemoryDesc):
                check_dims("dst_desc", dst_desc, dims, "what the factors make of src")
        return cls.made(
            prop_kind=prop_kind, alg_kind=alg_kind, src_desc=src_desc, dst_desc=dst_desc, taps=taps
        )

    @classmethod
    def backward(
        cls,
        alg_kind: Alg | str,
        diff_src_desc: MemoryDesc,
        diff_dst_desc: MemoryDesc,
        factors: Sequence[float] | float | None = None,
        taps: Sequence[Taps | Interpolation] = (),
    ) -> ResamplingDesc:
        """Describe the gradient of src from that of dst; raises InvalidArguments where the rules
        are broken. ``factors``, if given, must be those between the dims, and ``taps`` those of the
        forward computation."""
        if factors is not None and isinstance(diff_dst_desc, MemoryDesc):
            dims = _resized("factors", factors, "diff_src_desc", diff_src_desc)
            check_dims("diff_dst_desc", diff_dst_desc, dims, "what the factors make of src")
        return cls.made(
            prop_kind=PropKind.backward_data,
            alg_kind=alg_kind,
            diff_src_desc=diff_src_desc,
            diff_dst_desc=diff_dst_desc,
            taps=taps,
        )

    @property
    def _ends(self) -> tuple[tuple[str, MemoryDesc], tuple[str, MemoryDesc]]:
        """src and dst, or their gradients, with their names."""
        names = ("src_desc", "dst_desc")
        if not self.propagation.is_forward:
            names = ("diff_src_desc", "diff_dst_desc")
        return (names[0], getattr(self, names[0])), (names[1], getattr(self, names[1]))

    def check(self) -> None:
        """There are batch, channels and space; batch and channels are the same, and there is
        something to take elements of."""
        (name, src), (other, dst) = self._ends
        if not 3 <= src.ndims <= 5:
            rule = "expected 3 to 5 dimensions: batch, channels and 1 to 3 spatial ones"
            raise InvalidArguments(name, src.dims, rule)
        check_dims(other, dst, (*src.dims[:2], *dst.dims[2:]), "batch and channels of src")
        if dst.ndims != src.ndims:
            rule = f"expected {src.ndims} dimensions, as src has"
            raise InvalidArguments(other, dst.dims, rule)
        for old, new in zip(src.dims[2:], dst.dims[2:], strict=True):
            if RUNTIME_DIM not in (old, new) and (old == 0) != (new == 0):
                rule = f"src is {src.dims}: nothing is made of no elements, or of them"
                raise InvalidArguments(other, dst.dims, rule)
        if self.taps:
            self._check_taps(src.dims[2:], dst.dims[2:])

    def _check_taps(self, old: Sequence[int], new: Sequence[int]) -> None:
        """There are taps for each spatial dimension, which make the elements of dst of those of
        src."""
        if len(self.taps) != len(old):
            rule = f"expected one for each of {len(old)} spatial dimensions"
            raise InvalidArguments("taps", self.taps, rule)
        for number, (taps, from_, to) in enumerate(zip(self.taps, old, new, strict=True)):
            name = f"taps[{number}]"
            if isinstance(taps, Taps) and (
                to not in (taps.elements, RUNTIME_DIM)
                or (from_ != RUNTIME_DIM and taps.beyond > from_)
            ):
                rule = f"expected those of {to} elements, out of {from_}"
                raise InvalidArguments(name, taps, rule)
            if self.alg_kind is Alg.resampling_nearest and taps.count > 1:
                rule = "expected one tap for each element, which is the nearest"
                raise InvalidArguments(name, taps, rule, "weighted sums are resampling_linear")

    def complete_typical(self, dims: dict[int, list[int]]) -> None:
        """Open sizes of dst are larger than those of src; given taps decide on both."""
        src, dst = (next(a for a in ends if a in dims) for ends in _ENDS)
        (_, old), (_, new) = self._ends
        for dim in range(2, old.ndims):
            taps = self.rules[dim - 2]
            if old.dims[dim] == RUNTIME_DIM and isinstance(taps, Taps):
                dims[src][dim] = max(dims[src][dim], taps.beyond)
            if new.dims[dim] == RUNTIME_DIM:
                dims[dst][dim] = _made_of(dims[src][dim], taps)

    @property
    def rules(self) -> tuple[Taps | Interpolation, ...]:
        """What is summed up along each spatial dimension: ``taps``, or the usual ones."""
        linear = self.alg_kind is Alg.resampling_linear
        usual = Interpolation("linear" if linear else "nearest")
        return self.taps or (usual,) * (self._ends[0][1].ndims - 2)

    def size_name(self, argument: int, dim: int, letter: str) -> str:
        """Sizes of dst are others than those of src."""
        return f"o{letter}" if dim > 1 and argument in _ENDS[1] else letter

    @property
    def problem(self) -> str:
        """The sizes as ``mb16ic64_ih14oh28_iw14ow28``."""
        (_, src), (_, dst) = self._ends
        batch, channels = map(spelled_size, src.dims[:2])
        letters = "dhw"[5 - src.ndims :]
        columns = zip(letters, src.dims[2:], dst.dims[2:], strict=True)
        sizes = (f"_i{d}{spelled_size(old)}o{d}{spelled_size(new)}" for d, old, new in columns)
        return f"mb{batch}ic{channels}{''.join(sizes)}"


def _made_of(size: int, taps: Taps | Interpolation) -> int:
    """The typical size that an axis gets: that of its table, or by its scale, or twice the size."""
    if isinstance(taps, Taps):
        return taps.elements
    return max(1, floor(size * (taps.scale or 2)))


def _resized(
    name: str, factors: Sequence[float] | float, field: str, src: MemoryDesc
) -> tuple[int, ...]:
    """The dims of dst; raises InvalidArguments for what are no factors."""
    if not isinstance(src, MemoryDesc):
        raise InvalidArguments(field, src, "expected a dnnl.MemoryDesc")
    rule = "expected a positive number for each spatial dimension"
    each = [factors] * (src.ndims - 2) if isinstance(factors, int | float) else factors
    read = read_sequence(name, each, rule)
    numbers = tuple(read_float(name, number) for number in read)
    fits = len(numbers) == src.ndims - 2 and all(0 < number < inf for number in numbers)
    if not fits or RUNTIME_DIM in src.dims:
        raise InvalidArguments(name, factors, rule)
    sizes = [extent * number for extent, number in zip(src.dims[2:], numbers, strict=True)]
    if any(size >= _MOST for size in sizes):
        raise InvalidArguments(name, factors, f"dims of dst must be less than {_MOST:.0f}")
    return (*src.dims[:2], *map(trunc, sizes))


@dataclass(frozen=True)
class _EachTaps(Domain[tuple[Taps | Interpolation, ...]]):
    """Taps for each spatial dimension, or none."""

    def read(self, name: str, value: object, ndims: int) -> tuple[Taps | Interpolation, ...]:
        rule = "expected a dnnl.Taps or a dnnl.Interpolation for each spatial dimension"
        given = read_sequence(name, value, rule)
        read = tuple(each for each in given if isinstance(each, Taps | Interpolation))
        if len(read) != len(given):
            raise InvalidArguments(name, value, rule)
        return read

    def spell(self, value: tuple[Taps | Interpolation, ...]) -> str:
        """How many there are along each dimension, or the rules."""
        counts = all(isinstance(each, Taps) for each in value)
        return ("x" if counts else "+").join(map(_spelled, value))


def _spelled(taps: Taps | Interpolation) -> str:
    """A number of taps, or the fields of a rule without those at the end that are as usual."""
    if isinstance(taps, Taps):
        return str(taps.count)
    parts, usual = _fields(taps), _fields(Interpolation(taps.function))
    while len(parts) > 1 and parts[-1] == usual[len(parts) - 1]:
        parts.pop()
    return ":".join(parts)


def _fields(rule: Interpolation) -> list[str]:
    values = (getattr(rule, field.name) for field in fields(rule))
    return ["" if value is None else str(value) for value in values]


def _rule(text: str) -> Interpolation:
    """``function:coordinates:rounding:scale:cubic``; what is left out is as usual."""
    names, parts = [field.name for field in fields(Interpolation)], text.split(":")
    if len(parts) > len(names):
        raise ValueError(f"expected {':'.join(names)}")
    given: dict[str, Any] = {n: part for n, part in zip(names, parts, strict=False) if part}
    try:
        for name, read in (("scale", Fraction), ("cubic", float)):
            if name in given:
                given[name] = read(given[name])
        return Interpolation(**{"function": "", **given})
    except (InvalidArguments, ZeroDivisionError) as error:
        raise ValueError(str(error)) from error


def _forward(desc: ResamplingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    configure = partial(kernel.configure, desc.rules, False, desc.src_desc, desc.dst_desc)
    return plan_forward(desc, attr, isa, configure, kernel.build)


def _backward(desc: ResamplingDesc, attr: PrimitiveAttr, isa: Isa) -> Plan | Refusal:
    ends = desc.diff_dst_desc, desc.diff_src_desc
    configure = partial(kernel.configure, desc.rules, True, *ends, Attributes())
    return plan_nest(desc, attr, isa, configure, kernel.build)


def _src(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.src_dims, case["sdt"], case.tag(0))


def _dst(case: CaseValues) -> MemoryDesc:
    return tensor(case.sizes.window_dims, case["ddt"], case.tag(1))


def _each(text: str) -> Parts:
    """How many taps there are along each spatial dimension, as ``4x4``, or the rules, as
    ``cubic+linear``, one of them for all; none for the usual ones."""
    if not text or text[0].isdigit():
        counts: Parts = several(integer, (1, 2, 3), "x")(text) if text else Parts((), "x")
        if any(count < 1 for count in counts.items):
            raise ValueError("expected positive numbers with an x between them")
        return counts
    return Parts(tuple(map(_rule, text.split("+"))), "+")


def _invalid(case: CaseValues) -> str | None:
    given, ndims = case["taps"].items, len(case.sizes.src_dims) - 2
    rules = bool(given) and isinstance(given[0], Interpolation)
    if len(given) not in ((1, ndims) if rules else (0, ndims)):
        return f"{len(given)} {'rules' if rules else 'numbers of taps'} for {ndims} dimensions"
    counts = [each.count if rules else each for each in given]
    if str(case["alg"]) == "nearest" and any(count > 1 for count in counts):
        return "the nearest element is one"
    return None


def _taps(case: CaseValues) -> tuple[Taps | Interpolation, ...]:
    """The rules of the case, or as many taps for each element as it says, around its position in
    src."""
    ends = case.sizes.src_dims[2:], case.sizes.window_dims[2:]
    given = case["taps"].items
    if given and isinstance(given[0], Interpolation):
        return tuple(given * (len(ends[0]) if len(given) == 1 else 1))
    pairs = zip(*ends, given, strict=True) if given else ()
    return tuple(_around(*sizes) for sizes in pairs)


def _around(old: int, new: int, count: int) -> Taps:
    """``count`` neighbours of ``old`` elements for each of ``new``, or all if they are fewer, with
    weights that differ."""
    count, at = min(count, old), np.arange(new)
    first = np.clip((2 * at + 1) * old // (2 * new) - (count - 1) // 2, 0, old - count)
    number = np.arange(count)[:, np.newaxis]
    weights = 1 + (at + 3 * number) % 5
    return Taps(first + number, weights / weights.sum(0))


ResamplingDesc.operation = Operation(
    kind="resampling",
    summary="resampling: the image in another size",
    driver=Driver(
        "resampling",
        (
            DIR, SDT, DDT, TAG,
            algorithm("nearest", {"nearest": "resampling_nearest", "linear": "resampling_linear"}),
            MB, auxiliary("taps", "", _each), *ATTRIBUTES,
        ),
        Grammar(("mb", "ic"), (*IMAGE, *OUTPUT), lowest=3),
    ),
    roles=(
        Role(Arg.SRC, "src", "src_desc", reads=FORWARD, letters="nc*", case=_src),
        Role(
            Arg.DST, "dst", "dst_desc", writes=FORWARD, like=("src_desc",), letters="nc*",
            case=_dst,
        ),
        Role(
            Arg.DIFF_SRC, "src", "diff_src_desc", writes=BACKWARD_DATA, like=("diff_dst_desc",),
            letters="nc*", case=_src,
        ),
        Role(
            Arg.DIFF_DST, "dst", "diff_dst_desc", reads=BACKWARD_DATA, like=("diff_src_desc",),
            letters="nc*", case=_dst,
        ),
    ),
    parameters=(
        Parameter("alg_kind", Algorithm("resampling_"), lambda case: case["alg"].alg, "alg"),
        Parameter("taps", _EachTaps(), _taps, "taps", usual=()),
    ),
    invalid=_invalid,
    reference=SPECIFICATION,
    examples=(
        # Larger and smaller, by whole factors and others, in one to three dimensions.
        "--alg=nearest,linear --tag=abx,axb,aBx16b ic19ih5oh10 ic19ih9oh5_iw8ow19 ic5iw7ow33",
        "--alg=nearest,linear --tag=abx,axb,aBx8b ic18id3od5_ih4oh3_iw5ow11 ic3ih1oh4_iw6ow1",
        "--alg=nearest,linear --tag=abx,axb --sdt=bf16,f16 --ddt=bf16,f32 mb3ic20ih7oh12",
        # Blocks of space, channels outermost, nothing to do but a copy, more vectors than one.
        "--alg=nearest,linear --tag=aBCD8b2c4d,bacd,ABcd4a4b ic20ih6oh9_iw5ow8 ic33ih6oh6",
        "--alg=linear --tag=abx,axb mb1ic130ih9oh18 mb1ic2ih64oh200",
        # Given taps, by rows and else, along dimensions that they leave as they are as well.
        "--alg=linear --taps=4x4,5x1 --tag=abx,axb,aBx8b ic18ih7oh13_iw9ow20 ic5ih20oh9_iw40ow21",
        "--alg=nearest,linear --taps=1x1 --tag=abx,axb --ddt=f32,bf16 ic18ih7oh13_iw9ow20",
        # Rules.
        "--alg=linear --taps=cubic:asymmetric --tag=abx,axb ic18ih7oh13_iw9ow20 ic5ih20oh9",
        "--alg=linear --taps=linear:align_corners --tag=abx,axb ic18ih7oh13_iw9ow20",
        "--alg=linear --taps=linear:half_pixel::5/2+nearest --tag=abx,axb ic18ih7oh13_iw9ow20",
        "--taps=nearest:asymmetric:floor,nearest:align_corners:half_down --tag=abx,axb ic18ih7oh13",
    ),
    implementations=(
        Implementation("nest", _forward, FORWARD),
        Implementation("nest", _backward, BACKWARD_DATA),
    ),
)  # fmt: skip
