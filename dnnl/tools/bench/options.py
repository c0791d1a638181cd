"""The options of the drivers, as data: one row for each, in the order of the loops.

A problem runs for every combination of the values in its driver's lists; the first option of a
driver varies slowest. ``ATTRIBUTES`` stand among them where their loops do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from dnnl.tools.bench import attributes as attr
from dnnl.tools.bench.descriptor import Descriptor, parse_descriptor
from dnnl.tools.bench.problem import Shapes, parse_shapes
from dnnl.tools.bench.tags import tag
from dnnl.tools.bench.values import (
    Parser,
    Text,
    any_case,
    data_type,
    direction,
    flag,
    integer,
    letters,
    matching,
    number,
    one_of,
    several,
    text,
)

Problem = Shapes | Descriptor


@dataclass(frozen=True)
class Option:
    """One option: its name without dashes, what it is at first, and how an item of it is read.

    ``always`` shows it in repro lines even if it has its default; ``empty`` says that an empty
    value means no combination at all rather than the default.
    """

    name: str
    default: str
    parse: Parser
    always: bool = False
    empty: bool = False


@dataclass(frozen=True)
class Driver:
    """What one driver reads: its options in the order of the loops, and its problems."""

    name: str
    options: tuple[Option, ...]
    problem: Callable[[str], Problem]
    shown: tuple[int, ...] = field(init=False)
    """The places of the options in the order in which repro lines have them."""

    def __post_init__(self) -> None:
        names = [option.name for option in self.options]
        order = sorted(range(len(names)), key=lambda place: _shown_rank(names, place))
        object.__setattr__(self, "shown", tuple(order))

    def find(self, name: str) -> Option | None:
        """The option of that name."""
        return next((option for option in self.options if option.name == name), None)


def _shown_rank(names: list[str], place: int) -> float:
    """In-place comes before the attributes, which end with rounding, determinism and dropout."""
    name = names[place]
    late = ("attr-rounding-mode", "attr-deterministic", "attr-dropout")
    first = names.index("attr-scales") if "attr-scales" in names else len(names)
    if name == "inplace":
        return first - 0.5
    if name in late:
        return names.index("attr-rounding-mode") + late.index(name) / 4
    return place


def _threads(value: str) -> Text:
    if value:
        several(integer, range(1, 4))(value)
    return Text(value)


ATTRIBUTES = (
    Option("attr-scales", "", attr.scales),
    Option("attr-zero-points", "", attr.zero_points),
    Option("attr-precomputed-reductions", "", attr.reductions),
    Option("attr-post-ops", "", attr.post_ops),
    Option("attr-scratchpad", "library", one_of("library", "user")),
    Option("attr-fpmath", "strict", attr.fpmath),
    Option(
        "attr-acc-mode", "strict", one_of("strict", "relaxed", "any", "f32", "s32", "f16")
    ),
    Option("attr-deterministic", "false", flag),
    Option("attr-dropout", "", attr.dropout),
    Option("attr-rounding-mode", "dst:environment", attr.rounding_mode, empty=True),
    Option("ctx-init", "", _threads),
    Option("ctx-exe", "", _threads),
)  # fmt: skip

_DIR = Option("dir", "FWD_D", direction)
_SDT = Option("sdt", "f32", data_type)
_DDT = Option("ddt", "f32", data_type)
_DT = Option("dt", "f32", data_type)
_STAG = Option("stag", "abx", tag)
_WTAG = Option("wtag", "any", tag)
_DTAG = Option("dtag", "any", tag)
_TAG = Option("tag", "abx", tag)
_MB = Option("mb", "0", integer)
_INPLACE = Option("inplace", "false", flag)
_BIA_DT = Option("bia-dt", "undef", data_type)
_TAGS = several(text)
_AXIS = Option("axis", "1", integer)


def _algs(default: str, *names: str, always: bool = False) -> Option:
    return Option("alg", default, any_case(*names), always)


def _types(default: str, *counts: int, name: str = "sdt") -> Option:
    return Option(name, default, several(data_type, counts or range(1, 100)))


def _strides(count: int) -> Option:
    def parse(value: str) -> Text:
        if value and value.count(":") != count - 1:
            raise ValueError(f"expected {count} parts with colons between them")
        if not re.fullmatch("([0-9]+(x[0-9]+)*|:)*", value):
            raise ValueError("expected numbers with an x between them")
        return Text(value)

    return Option("strides", "", parse)


def _flags(known: str) -> Option:
    return Option("flags", "", letters(known))


def _replaced(option: Option, default: str) -> Option:
    return Option(option.name, default, option.parse, option.always)


def _always(*options: Option) -> tuple[Option, ...]:
    return tuple(Option(o.name, o.default, o.parse, always=True) for o in options)


_dims = partial(parse_shapes, low=1, high=1)
_pair = partial(parse_shapes, low=2, high=2)
_list = partial(parse_shapes, low=1, high=64)

_ELTWISE = tuple(name for name in attr.ELTWISE if not name.startswith("eltwise_"))
_BINARY = tuple(name for name in attr.BINARY if not name.startswith("binary_"))
_SOFTMAX = ("SOFTMAX", "LOGSOFTMAX", "softmax_accurate", "softmax_log")
_REDUCTIONS = (
    "sum", "max", "min", "mul", "mean", "norm_lp_max", "norm_lp_sum",
    "norm_lp_power_p_max", "norm_lp_power_p_sum",
)  # fmt: skip


def _elementwise_algs(known: dict[str, object], names: tuple[str, ...]) -> Parser:
    """Short and long names, in capitals or not, which mean the short one."""
    parse = any_case(*known)

    def short(value: str) -> Text:
        alg = known[parse(value)]
        return Text(next(name for name in names if known[name] is alg))

    return short


def _descriptors(name: str) -> Callable[[str], Problem]:
    return partial(parse_descriptor, name)


_TABLE = (
    Driver(
        "reorder",
        (
            *_always(_SDT, _DDT, _STAG, _replaced(_DTAG, "abx")),
            _strides(2),
            Option(
                "oflag", "",
                matching(
                    r"((s8s8|zp)_comp:[0-9]+(\+(?!$)|$))*",
                    "s8s8_comp:MASK, zp_comp:MASK or both with a + between them",
                ),
            ),
            Option("cross-engine", "none", one_of("none", "cpu2gpu", "gpu2cpu")),
            *ATTRIBUTES,
            Option("runtime-dim-mask", "0", integer),
        ),
        _dims,
    ),
    Driver(
        "softmax",
        (_DIR, _SDT, _DDT, _STAG, _DTAG, _algs("SOFTMAX", *_SOFTMAX), _AXIS, _MB, *ATTRIBUTES,
         _INPLACE),
        _dims,
    ),
    Driver(
        "eltwise",
        (
            _DIR, _DT, _TAG,
            Option("alg", "relu", _elementwise_algs({**attr.ELTWISE}, _ELTWISE), always=True),
            Option("alpha", "0", number, always=True),
            Option("beta", "0", number, always=True),
            _MB, *ATTRIBUTES, _INPLACE,
        ),
        _dims,
    ),
    Driver(
        "binary",
        (
            _types("f32:f32", 2), _DDT, Option("stag", "abx:any", several(text, (2,))), _DTAG,
            _strides(3), Option("alg", "ADD", _elementwise_algs({**attr.BINARY}, _BINARY)),
            *ATTRIBUTES, _INPLACE,
        ),
        _pair,
    ),
    Driver(
        "sum",
        (
            _types("f32:f32"), _DDT, Option("stag", "abx", _TAGS),
            _replaced(_DTAG, "undef"), Option("scales", "1", several(number), always=True),
            *ATTRIBUTES, _INPLACE,
        ),
        _dims,
    ),
    Driver(
        "concat",
        (_SDT, _DDT, Option("stag", "abx", _TAGS), _replaced(_DTAG, "undef"), _AXIS, *ATTRIBUTES),
        _list,
    ),
    Driver(
        "prelu",
        (_DIR, _types("f32:f32", 1, 2), Option("stag", "abx:any", several(text, (2,))),
         *ATTRIBUTES),
        _pair,
    ),
    Driver(
        "lnorm",
        (
            _DIR, _types("f32", 1, 2, name="dt"), Option("tag", "abx:any", several(text, (1, 2))),
            Option("stat_tag", "any", tag), Option("ss_dt", "f32", data_type), _flags("GCHM"),
            *ATTRIBUTES, _INPLACE,
        ),
        _dims,
    ),
    Driver(
        "bnorm",
        (_DIR, _DT, _TAG, _strides(2), _flags("GCHRA"), _MB, *ATTRIBUTES, _INPLACE),
        _descriptors("bnorm"),
    ),
    Driver(
        "gnorm",
        (
            _DIR, _types("f32", 1, 2, name="dt"), Option("tag", "abx:any", several(text, (1, 2))),
            _flags("GCH"), _MB, *ATTRIBUTES, _INPLACE,
        ),
        _descriptors("gnorm"),
    ),
    Driver(
        "lrn",
        (_DIR, _DT, _TAG, _algs("ACROSS", "ACROSS", "WITHIN"), _MB, *ATTRIBUTES),
        _descriptors("lrn"),
    ),
    Driver(
        "shuffle",
        (_DIR, _DT, _TAG, Option("group", "1", integer), _AXIS, *ATTRIBUTES),
        _dims,
    ),
    Driver(
        "pool",
        (
            _DIR, _types("f32", 1, 2, name="dt"), _TAG,
            _algs("max", "max", "avg_np", "avg_p"), _MB, *ATTRIBUTES,
        ),
        _descriptors("pool"),
    ),
    Driver(
        "resampling",
        (_DIR, _SDT, _DDT, _TAG, _algs("nearest", "nearest", "linear"), _MB, *ATTRIBUTES),
        _descriptors("resampling"),
    ),
    Driver(
        "reduction",
        (
            _SDT, _DDT, _STAG, _DTAG, _algs("sum", *_REDUCTIONS), Option("p", "1", number),
            Option("eps", "0", number), *ATTRIBUTES,
        ),
        _pair,
    ),
    *(
        Driver(
            name,
            (
                _replaced(_DIR, "FWD_B"), _types("f32", 1, 3, name="dt"), _BIA_DT,
                _replaced(_STAG, "any"), _WTAG, _DTAG, *strides,
                _algs("DIRECT", "DIRECT", "WINO", "AUTO"), *ATTRIBUTES, _MB,
            ),
            _descriptors(name),
        )
        for name, strides in (("conv", (_strides(3),)), ("deconv", ()))
    ),
    Driver(
        "ip",
        (
            _replaced(_DIR, "FWD_B"), _types("f32", 1, 3, name="dt"), _BIA_DT,
            _replaced(_STAG, "any"), _WTAG, _DTAG, *ATTRIBUTES, _MB,
        ),
        _descriptors("ip"),
    ),
    Driver(
        "matmul",
        (
            _types("f32", 1, 3, name="dt"), _replaced(_STAG, "any"), _WTAG, _DTAG,
            Option(
                "encoding", "",
                matching(
                    r"((csr|coo|packed)?(\+[0-9.]+)?:?){0,3}",
                    "csr, coo or packed[+SPARSITY] for each tensor, with colons between them",
                ),
            ),
            Option("grouped", "", text), _strides(3),
            Option("runtime_dims_masks", "", _TAGS), *ATTRIBUTES, _BIA_DT,
            Option("bia_mask", "2", integer),
        ),
        _pair,
    ),
    Driver(
        "rnn",
        (
            Option("prop", "FWD_I", direction), Option("cfg", "f32", text),
            Option("tag", "any", several(text, (1, 3))),
            Option("alg", "VANILLA_RNN", text),
            *(Option(name, "false", flag) for name in ("with-peephole", "with-projection")),
            Option("scaling", "common", text), Option("scaling-proj", "common", text),
            Option("direction", "left2right", text), Option("activation", "RELU", text),
            Option("skip-nonlinear", "false", flag), Option("trivial-strides", "true", flag),
            Option("flags", "", letters("O")), Option("l", "0", integer),
            Option("t", "0", integer), _MB, *ATTRIBUTES,
        ),
        _descriptors("rnn"),
    ),
    Driver("zeropad", (_DT, _TAG), _dims),
)  # fmt: skip

DRIVERS = {driver.name: driver for driver in _TABLE}
