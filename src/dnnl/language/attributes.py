"""Attributes of a case: ``--attr-NAME=`` texts and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dnnl.language.tags import tag
from dnnl.language.values import (
    Lacking,
    Number,
    Text,
    data_type,
    flag,
    integer,
    number,
    one_of,
    sizes,
)
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import Alg, nearest

_POLICIES = {
    "common": 0, "host_scalar": 0,
    "per_dim_0": 1, "per_dim_1": 2, "per_dim_2": 4, "per_dim_3": 8,
    "per_dim_01": 3, "per_ocic": 3, "per_oc": 2,
    "per_tensor": -1, "mx": -1, "dynamic_fp": -1,
}  # fmt: skip
"""The mask of each name, before the driver has its say; -1 has every bit."""
_ZERO, _ONE = Number(0), Number(1)
DYNAMIC = {"mx": "dynamic_mx", "dynamic_fp": "dynamic_fp"}
"""The quantization modes by the names of their masks."""
_PLAIN_DROPOUT = (12345, "any", 0, False)
"""Seed, layout of the mask, offset, and whether these are scalars of the host."""
_ARGUMENTS = {
    "src": Arg.SRC, "src0": Arg.SRC, "src1": Arg.SRC_1, "wei": Arg.WEIGHTS, "dst": Arg.DST,
    "wei_iter": Arg.WEIGHTS_ITER, "wei_proj": Arg.WEIGHTS_PROJECTION,
    "attr_post_op_dw_wei": Arg.POST_OP_DW | Arg.WEIGHTS,
    "attr_post_op_dw_dst": Arg.POST_OP_DW | Arg.DST,
}  # fmt: skip
_ROUNDED = ("dst", "diff_src", "diff_weights")
_WITH_DST = ("clip_v2", "elu", "exp", "logistic", "relu", "sqrt", "tanh")
_ELTWISE = tuple(
    name.removeprefix("eltwise_")
    for name, alg in Alg.__members__.items()
    if alg.is_eltwise and not alg.uses_dst
)
ELTWISE: dict[str, Alg] = {
    **{name: Alg[f"eltwise_{name}"] for name in _ELTWISE},
    **{f"{name}_dst": Alg[f"eltwise_{name}_use_dst_for_bwd"] for name in _WITH_DST},
    **{name: alg for name, alg in Alg.__members__.items() if alg.is_eltwise},
}
BINARY: dict[str, Alg] = {
    **{n.removeprefix("binary_"): Alg[n] for n in Alg.__members__ if n.startswith("binary_")},
    **{name: Alg[name] for name in Alg.__members__ if name.startswith("binary_")},
}
_ELSEWHERE = ("mul_inplace", "binary_mul_inplace")
"""The post-ops that only oneDNN has."""
_SHORT_ELTWISE = {ELTWISE[name]: name for name in reversed(ELTWISE) if "eltwise_" not in name}
_SHORT_BINARY = {BINARY[name]: name for name in BINARY if "binary_" not in name}


def short_name(alg: Alg) -> str:
    """The name of an eltwise or binary algorithm in the texts of cases."""
    return _SHORT_ELTWISE.get(alg) or _SHORT_BINARY[alg]


@dataclass(frozen=True, slots=True)
class Mask:
    """Along which dimensions values vary, as it was written: a policy or an integer."""

    name: str

    def bits(self, ndims: int) -> int:
        """The mask for a tensor with ``ndims`` dimensions, where the driver has no rule."""
        if self.name not in _POLICIES:
            return int(self.name)
        bits = _POLICIES[self.name]
        return (1 << ndims) - 1 if bits < 0 else bits

    @property
    def common(self) -> bool:
        """Whether there is a single value."""
        return _POLICIES.get(self.name, self.name) in (0, "0")

    def __str__(self) -> str:
        return self.name


NO_MASK = Mask("0")


def mask(value: str) -> Mask:
    """A policy, in capitals or not, or an integer that is not negative."""
    if value.lower() in _POLICIES:
        return Mask(value.lower())
    if integer(value) < 0:
        raise ValueError(f"a mask is an integer or one of {', '.join(_POLICIES)}")
    return Mask(value)


@dataclass(frozen=True, slots=True)
class Quantization:
    """Scales or zero points of one argument; ``value`` is that of a single one."""

    name: str
    mask: Mask
    value: Number
    data_type: DataType
    groups: tuple[int, ...] = ()
    plain_type: DataType = DataType.f32

    @property
    def argument(self) -> int:
        """The execution argument that they belong to."""
        if self.name.startswith("msrc"):
            return Arg.multiple_src(int(self.name[4:]))
        return int(_ARGUMENTS[self.name])

    def __str__(self) -> str:
        parts = [self.name, str(self.mask)]
        if self.mask.common:
            parts.append(str(self.value))
        if self.data_type is not self.plain_type or self.groups:
            parts.append(str(self.data_type))
        if self.groups:
            parts.append("x".join(map(str, self.groups)))
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Entries:
    """What one attribute holds: entries joined by a plus sign."""

    items: tuple[object, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.items))


def entries(value: str) -> list[str]:
    """The parts of an attribute, which plus signs join; one before a digit is part of a number."""
    return re.split(r"\+(?![0-9])", value) if value else []


def scales(value: str) -> Entries:
    """``ARG:MASK[:VALUE][:DT[:GROUPS]]``, joined by plus signs; none for no text."""
    return _quantizations(value, DataType.f32, _ONE)


def zero_points(value: str) -> Entries:
    """As scales, of integers."""
    found = _quantizations(value, DataType.s32, _ZERO)
    for entry in found.items:
        assert isinstance(entry, Quantization)
        if not entry.value.is_integer():
            raise ValueError("a zero point is a whole number")
    return found


def _quantizations(value: str, plain: DataType, default: Number) -> Entries:
    return Entries(tuple(_quantization(entry, plain, default) for entry in entries(value)))


def _quantization(entry: str, plain: DataType, default: Number) -> Quantization:
    name, *rest = entry.split(":")
    known = name in _ARGUMENTS or (name[:4] == "msrc" and name[4:].isdigit())
    if not known:
        raise ValueError(f"unknown argument {name!r}; there are {', '.join(_ARGUMENTS)}, msrcN")
    varies = mask(rest.pop(0)) if rest else NO_MASK
    single = default
    if varies.common and rest:
        single = number(rest.pop(0))
        if plain is DataType.f32 and not single >= 0:
            raise ValueError("a scale is not negative")
    kind = data_type(rest.pop(0)) if rest and rest[0] else plain
    groups = sizes(rest.pop(0)) if rest else ()
    if rest or (groups and len(groups) != 2):
        raise ValueError("expected ARG:MASK[:VALUE][:DT[:GROUPS]]")
    return Quantization(name, varies, single, kind, groups, plain)


def reductions(value: str) -> Entries:
    """``ARG:per_tensor[:DT[:GROUPS]]``, joined by plus signs."""
    return _quantizations(value, DataType.s32, _ZERO)


@dataclass(frozen=True, slots=True)
class Sum:
    """Add the destination."""

    scale: Number = _ONE
    zero_point: int = 0
    data_type: DataType = DataType.undef

    def __str__(self) -> str:
        texts = [str(self.scale), str(self.zero_point), str(self.data_type)]
        plain = ["1", "0", "undef"]
        while texts and texts[-1] == plain[len(texts) - 1]:
            texts.pop()
        return ":".join(["sum", *texts])


@dataclass(frozen=True, slots=True)
class Eltwise:
    """An elementary function, and a factor of its result."""

    alg: Alg
    alpha: Number = _ZERO
    beta: Number = _ZERO
    scale: Number = _ONE

    def __str__(self) -> str:
        texts = [str(self.alpha), str(self.beta), str(self.scale)]
        plain = ["0", "0", "1"]
        while texts and texts[-1] == plain[len(texts) - 1]:
            texts.pop()
        return ":".join([short_name(self.alg), *texts])


@dataclass(frozen=True, slots=True)
class Condition:
    """What is said of the condition of ``select``: a mask, and its layout."""

    mask: Mask
    tag: str = "any"

    def __str__(self) -> str:
        return str(self.mask) if self.tag == "any" else f"{self.mask}.{self.tag}"


@dataclass(frozen=True, slots=True)
class Binary:
    """A function with a second tensor; ``strides`` as they were written.

    The condition of ``select``, which ``third`` describes, has the dims of dst with every mask.
    """

    alg: Alg
    data_type: DataType
    mask: Mask = NO_MASK
    tag: str = "any"
    strides: str = ""
    third: Condition | None = None

    def __str__(self) -> str:
        inner = "." if self.alg is Alg.binary_select else ":"
        operand = [str(self.data_type), str(self.mask), self.tag, self.strides]
        while operand[-1] in ("", "any", "0"):
            operand.pop()
        texts = [short_name(self.alg), inner.join(operand)]
        return ":".join([*texts, str(self.third)] if self.third else texts)


@dataclass(frozen=True, slots=True)
class Prelu:
    """Multiply what is negative."""

    mask: Mask = NO_MASK

    def __str__(self) -> str:
        return "prelu" if self.mask.name == "0" else f"prelu:{self.mask}"


@dataclass(frozen=True, slots=True)
class Depthwise:
    """Follow with a depthwise convolution."""

    kernel: int
    stride: int
    padding: int
    data_type: DataType = DataType.f32

    def __str__(self) -> str:
        text = f"dw:k{self.kernel}s{self.stride}p{self.padding}"
        return text if self.data_type is DataType.f32 else f"{text}:{self.data_type}"


PostOp = Sum | Eltwise | Binary | Prelu | Depthwise


def post_ops(value: str) -> Entries:
    """Post-ops joined by plus signs; none for no text."""
    return Entries(tuple(map(_post_op, entries(value))))


def _post_op(entry: str) -> PostOp:
    head, *rest = entry.split(":")
    name = head.lower()
    if name == "sum":
        return _sum(rest)
    if name == "prelu":
        return Prelu(*map(mask, _at_most(1, rest)))
    if name == "dw":
        return _depthwise(rest)
    if name in ELTWISE:
        return Eltwise(ELTWISE[name], *map(number, _at_most(3, rest)))
    if name in BINARY:
        return _binary(BINARY[name], rest)
    if name in _ELSEWHERE:
        raise Lacking(f"there is no post-op {head}")
    known = ("sum", "prelu", "dw", *ELTWISE, *BINARY)
    raise ValueError(f"unknown post-op {head!r}; {nearest(name, known)}")


def _at_most(count: int, parts: list[str]) -> list[str]:
    if len(parts) > count:
        raise ValueError(f"expected at most {count} parts after the name of the post-op")
    return parts


def _sum(parts: list[str]) -> Sum:
    parsers = (number, integer, data_type)
    return Sum(*(p(t) for p, t in zip(parsers, _at_most(3, parts), strict=False)))  # type: ignore[arg-type]


def _binary(alg: Alg, parts: list[str]) -> Binary:
    if alg is Alg.binary_select:
        operand, *third = _at_most(2, parts)
        return Binary(*_operand(alg, operand.split(".")), third=_condition(*third))
    return Binary(*_operand(alg, parts))


def _condition(text: str = "") -> Condition | None:
    """``MASK[.TAG]``, None where nothing is said."""
    varies, dot, layout = text.partition(".")
    return Condition(mask(varies), tag(layout) if dot else "any") if text else None


def _operand(alg: Alg, parts: list[str]) -> tuple[Alg, DataType, Mask, str, str]:
    kind, varies, layout, strides = (*_at_most(4, parts), "", "", "", "")[:4]
    if strides:
        sizes(strides)
    return (
        alg,
        data_type(kind) if kind else DataType.undef,
        mask(varies) if varies else NO_MASK,
        tag("ab" if layout == "grouped" else layout) if layout else "any",  # groups are rows
        strides,
    )


def _depthwise(parts: list[str]) -> Depthwise:
    shape, *kind = _at_most(2, parts)
    numbers = shape[1:].replace("s", " ").replace("p", " ").split()
    if shape[:1] != "k" or len(numbers) != 3:
        raise ValueError("expected dw:kKsSpP[:DT]")
    k, s, p = map(integer, numbers)
    return Depthwise(k, s, p, *map(data_type, kind))


def fpmath(value: str) -> Text:
    """``MODE[:true]``."""
    mode, _, whole = value.partition(":")
    one_of("strict", "bf16", "f16", "tf32", "any")(mode)
    return Text(f"{mode}:true" if whole and flag(whole) else mode)


@dataclass(frozen=True, slots=True)
class Dropout:
    """Elements that are dropped at random, and where its parameters come from; ``tag`` is the
    layout of the mask, ``undef`` for none. An offset of 0 is not passed on."""

    probability: Number
    seed: int
    tag: str
    offset: int
    host_scalars: bool
    text: str

    def __str__(self) -> str:
        return self.text


def dropout(value: str) -> Dropout | Text:
    """``P[:SEED[:TAG[:OFFSET[:HOST]]]]``; no text means none."""
    if not value:
        return Text(value)
    parts = value.split(":")
    parsers: tuple[Callable[[str], Any], ...] = (number, integer, tag, integer, flag)
    if len(parts) > len(parsers):
        raise ValueError("expected P[:SEED[:TAG[:OFFSET[:HOST]]]]")
    given: list[Any] = [parse(part) for parse, part in zip(parsers, parts, strict=False)]
    given += _PLAIN_DROPOUT[len(given) - 1 :]
    probability, seed, layout, offset, host = given
    if not 0 <= probability <= 1:
        raise ValueError("a probability is between 0 and 1")
    return Dropout(probability, seed, str(layout), offset, bool(host), value)


@dataclass(frozen=True, slots=True)
class Rounding:
    """How one result is rounded; ``seed`` is that of ``stochastic``, None where it is not given."""

    name: str
    mode: str
    seed: int | None = None

    def __str__(self) -> str:
        text = f"{self.name}:{self.mode}"
        return text if self.seed is None else f"{text}:{self.seed}"


def rounding_modes(value: str) -> Entries:
    """``ARG:environment`` or ``ARG:stochastic[:SEED]``, joined by plus signs."""
    return Entries(tuple(map(_rounding, entries(value))))


def _rounding(entry: str) -> Rounding:
    name, _, rest = entry.partition(":")
    mode, *seed = rest.split(":")
    if name not in _ROUNDED or mode not in ("environment", "stochastic") or len(seed) > 1:
        form = "ARG:environment or ARG:stochastic[:SEED]"
        raise ValueError(f"expected {form}, ARG one of {', '.join(_ROUNDED)}")
    given = integer(seed[0]) if seed else None
    return Rounding(name, mode, given if mode == "stochastic" else None)
