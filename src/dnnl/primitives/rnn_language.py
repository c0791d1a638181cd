"""The cases of recurrent networks: their options, and how a verbose line tells them."""

from __future__ import annotations

from dnnl.language.descriptor import Grammar
from dnnl.language.errors import BadValue
from dnnl.language.options import ATTRIBUTES, MB, PROP, Driver, Option, open_tag
from dnnl.language.tags import tag
from dnnl.language.values import (
    Flag,
    Lacking,
    Named,
    Parser,
    any_case,
    flag,
    integer,
    letters,
    one_of,
    several,
)
from dnnl.language.verbose import OperationLine
from dnnl.types.dtype import DataType

CELLS = {
    "VANILLA_RNN": "vanilla_rnn", "VANILLA_LSTM": "vanilla_lstm", "VANILLA_GRU": "vanilla_gru",
    "LBR_GRU": "lbr_gru", "VANILLA_AUGRU": "vanilla_augru", "LBR_AUGRU": "lbr_augru",
}  # fmt: skip
ACTIVATIONS = {
    "RELU": "eltwise_relu", "TANH": "eltwise_tanh", "LOGISTIC": "eltwise_logistic",
}  # fmt: skip
DIRECTIONS = {
    "left2right": "unidirectional_left2right", "right2left": "unidirectional_right2left",
    "concat": "bidirectional_concat", "sum": "bidirectional_sum",
}  # fmt: skip
CONFIGURATIONS = {
    "f32": "f32 f32 f32 f32 f32", "bf16": "bf16 bf16 bf16 bf16 bf16",
    "bf16f32": "bf16 bf16 bf16 bf16 f32", "f16": "f16 f16 f16 f16 f32",
    "u8u8u8u8": "u8 u8 u8 u8 f32", "u8u8u8f32": "u8 u8 u8 f32 f32",
    "f32u8f32u8": "f32 u8 f32 u8 f32", "f32u8f32f32": "f32 u8 f32 f32 f32",
    "s8s8s8s8": "s8 s8 s8 s8 f32", "s8s8s8f32": "s8 s8 s8 f32 f32",
    "f32s8f32s8": "f32 s8 f32 s8 f32", "f32s8f32f32": "f32 s8 f32 f32 f32",
    "f32_s8": "f32 f32 f32 f32 f32 s8", "f32_u8": "f32 f32 f32 f32 f32 u8",
    "bf16_s8": "bf16 bf16 bf16 bf16 f32 s8",
}  # fmt: skip
"""The types of src_iter, src_layer, dst_iter, dst_layer and both states c, by the names of cases.
Weights have the type behind them, or are s8 where src_layer is an integer, else of its type."""
WEIGHTS = ("wei_layer", "wei_iter", "wei_proj")
DATA = ("src_iter", "src_layer", "dst_iter", "dst_layer", "src_iter_c", "dst_iter_c")


def types_of(name: str) -> dict[str, DataType]:
    """The types of inputs, states and results of a configuration, and of weights."""
    *kinds, cells = [DataType[kind] for kind in CONFIGURATIONS[name].split()[: len(DATA) - 1]]
    found = dict(zip(DATA, [*kinds, cells, cells], strict=True))
    src, *own = found["src_layer"], *CONFIGURATIONS[name].split()[len(DATA) - 1 :]
    usual = DataType.s8 if src.is_integer else src
    return found | dict.fromkeys(WEIGHTS, DataType[own[0]] if own else usual)


def _named(names: dict[str, str]) -> Parser:
    """One of the short names, or the one that verbose lines have for it."""
    short = {verbose: name for name, verbose in names.items() if verbose not in names}
    parse = any_case(*names, *short)

    def read(value: str) -> Named:
        spelled: str = parse(value)
        name = short.get(spelled, spelled)
        return Named.of(name, names[name])

    return read


def _fixed(value: str, reason: str) -> Parser:
    """A truth value, of which one is supported."""

    def read(given: str) -> Flag:
        found = flag(given)
        if str(found) != value:
            raise Lacking(reason)
        return found

    return read


def _types_of(line: OperationLine) -> str:
    names = (*DATA, *WEIGHTS)
    given = {name: tensor.data_type for name in names for tensor in line.named(name)}
    for name in CONFIGURATIONS:
        known = {key: str(kind) for key, kind in types_of(name).items()}
        if given.items() <= known.items():
            return name
    raise BadValue(f"no case can be made of the types {', '.join(sorted({*given.values()}))}")


def _scaling(name: str, weights: str) -> Option:
    """How scales of integer weights vary."""

    def from_line(line: OperationLine) -> str | None:
        masks = [value for name, value in line.attributes if name == f"rnn-{weights}-qparams"]
        return "per_oc" if masks and masks[0] != "0" else None

    return Option(name, "common", one_of(*_SCALINGS), from_line, names=_SCALINGS)


_SCALINGS = ("common", "per_oc")


def _tags_of(line: OperationLine) -> str | None:
    tensors = line.named("src_layer", "wei_layer", "dst_layer")
    if len(tensors) != 3 or any(tensor.strides for tensor in tensors):
        return None
    return ":".join(map(open_tag, tensors))


def _strides_of(line: OperationLine) -> str | None:
    """Whether states have gaps behind their rows."""
    states = line.named("src_iter", "src_iter_c", "dst_iter", "dst_iter_c")
    return "false" if any(tensor.strides for tensor in states) else None


def _has(name: str) -> Option:
    return Option(
        f"with-{name}", "false", flag,
        lambda line: "true" if line.named(_TOKENS[name]) else None,
    )  # fmt: skip


_TOKENS = {"peephole": "wei_peephole", "projection": "wei_proj", "lengths": "lengths"}


def _said(name: str, default: str, names: dict[str, str]) -> Option:
    read = _named(names)

    def from_line(line: OperationLine) -> str | None:
        if "functions" in line.aux:
            raise BadValue(f"no case can be made of the functions {line.aux['functions']}")
        value = line.aux.get(name, "undef")
        return None if value == "undef" else str(read(value))

    return Option(name, default, read, from_line, names=tuple(names))


_TYPES = tuple(CONFIGURATIONS)
DRIVER = Driver(
    "rnn",
    (
        PROP, Option("cfg", "f32", one_of(*CONFIGURATIONS), _types_of, layout=True, names=_TYPES),
        Option("tag", "any", several(tag, (1, 3)), _tags_of, layout=True),
        _said("alg", "VANILLA_RNN", CELLS), _has("peephole"), _has("projection"), _has("lengths"),
        _scaling("scaling", "weights"), _scaling("scaling-proj", "projection"),
        _said("direction", "left2right", DIRECTIONS), _said("activation", "RELU", ACTIVATIONS),
        Option("skip-nonlinear", "false", _fixed("false", "there are no cells without functions")),
        Option("trivial-strides", "true", flag, _strides_of),
        Option("flags", "", letters("O"), lambda line: line.aux.get("flags") or None), MB,
        Option("gate-order", "", str, lambda line: line.aux.get("gate_order") or None),
        *(Option(name, "0", integer) for name in ("l", "t")), *ATTRIBUTES,
    ),
    Grammar(
        ("l", "t", "mb", "sic", "slc", "dhc", "dic"), (), defaults={"l": 1, "t": 1},
        need=("sic",), follows={"slc": "sic", "dhc": "sic", "dic": "dhc"},
    ),
    matched=False,
)  # fmt: skip
