"""The notation of verbose lines: ours, and oneDNN's from version 2 on.

Version 2 writes ``exec,cpu,...`` behind the name of the library and ``src_f32::blocked:ab:f0`` for
a tensor; later ones add ``v1``, ``primitive`` and the field of the strides, and write
``src:f32::blocked:ab::f0``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from dnnl.language.errors import BadValue
from dnnl.language.values import TYPES

_HEAD = re.compile("(onednn|dnnl)_verbose")
_EVENT = re.compile("exec$|create:.*(hit|miss|start|blob)$|create_nested:.*(hit|miss)$")
_STAMP = re.compile(r"[0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?")
_OLD_NAME = re.compile(rf"(\w+?)_({'|'.join(TYPES)})")
_LAST = re.compile("f[0-9]+(_mask[0-9]+)?")
_ENCODED = ("sparse", "opaque")  # kinds of formats
_STRIDES = re.compile(r"([0-9]+(x[0-9]+)*|\*(x\*)*)?")
FIELDS = (
    "engine", "primitive", "implementation", "propagation", "memory descriptors", "attributes",
    "auxiliary", "problem", "time",
)  # fmt: skip
"""The suffixes of an operation's event."""


@dataclass(frozen=True)
class Tensor:
    """One descriptor of a line.

    ``letters`` are its flags (a: its layout was left open, p: padded), ``strides`` is empty where
    elements are dense, ``extra`` says what is stored with the elements (``f0``: nothing). A tensor
    with an encoding has its name as ``tag``, and its ``numbers``.
    """

    name: str
    data_type: str
    letters: str
    format_kind: str
    tag: str
    strides: str
    extra: str
    numbers: str = ""

    @property
    def mask(self) -> str:
        """The dimensions in which a bias has the size of the destination."""
        found = re.search("_mask([0-9]+)", self.extra)
        return found[1] if found else ""

    @property
    def encoded(self) -> bool:
        """Whether the tensor has an encoding."""
        return self.format_kind in _ENCODED

    @property
    def compensated(self) -> dict[str, int]:
        """The masks of the compensation stored behind the elements, ``s8m`` and ``zpm``."""
        found = re.findall("(s8m|zpm)([0-9]+)", self.extra)
        return {name: int(mask) for name, mask in found}


@dataclass(frozen=True)
class OperationLine:
    """A line of an operation that was created or executed; ``ms`` is None where it has no time."""

    library: str
    event: str
    engine: str
    kind: str
    impl: str
    prop: str
    tensors: tuple[Tensor, ...]
    attributes: tuple[tuple[str, str], ...]
    aux: dict[str, str]
    problem: str
    ms: float | None

    def named(self, *names: str) -> list[Tensor]:
        """The tensors of these names."""
        return [tensor for tensor in self.tensors if tensor.name in names]

    @cached_property
    def sources(self) -> list[Tensor]:
        """The sources, or their gradients; what is both source and destination is called data."""
        return self.named("src", "data") or self.named("diff_src", "src_a", "src_b")

    @property
    def target(self) -> Tensor:
        """The destination, or its gradient; raises BadValue if there is none."""
        found = self.named("dst", "data") or self.named("diff_dst", "diff")
        if not found:
            raise BadValue(f"the line names no dst among its tensors: {_names(self.tensors)}")
        return found[-1]

    @property
    def source(self) -> Tensor:
        """The first source; raises BadValue if there is none."""
        if not self.sources:
            raise BadValue(f"the line names no src among its tensors: {_names(self.tensors)}")
        return self.sources[0]


@dataclass(frozen=True)
class OtherLine:
    """A line of anything else: what it is about, as ``primitive create:check``, and its fields."""

    library: str
    topic: str
    fields: tuple[str, ...]


def _names(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(tensor.name for tensor in tensors) or "none"


def is_verbose(text: str) -> bool:
    """Whether a text is meant as a verbose line."""
    return _HEAD.fullmatch(text.strip().partition(",")[0]) is not None


def read_line(text: str) -> OperationLine | OtherLine:
    """Read one line; raises BadValue with the token that cannot be read."""
    head, *fields = text.strip().split(",")
    if not is_verbose(text):
        raise BadValue(f"{head!r} begins no verbose line; those begin with onednn_verbose")
    library = "oneDNN" if head == "onednn_verbose" else "oneDNN or dnnl"
    if fields[:1] == ["v1"]:
        del fields[0]
        library = "oneDNN" if head == "onednn_verbose" else "dnnl"
    if fields and _STAMP.fullmatch(fields[0]):
        del fields[0]
    part = (
        fields.pop(0) if fields[:1] in (["primitive"], ["graph"], ["common"], ["ukernel"]) else ""
    )
    if not fields:
        raise BadValue(f"{text.strip()!r} ends before it says what happened")
    event, *rest = fields
    if part in ("", "primitive") and _EVENT.match(event):
        return _operation(library, event, rest)
    if part == "" and event.startswith("create:dispatch"):
        part = "primitive"
    return OtherLine(library, f"{part} {event}".strip(), tuple(rest))


def _operation(library: str, event: str, fields: list[str]) -> OperationLine:
    if len(fields) < len(FIELDS) - 1:
        missing = FIELDS[len(fields)]
        raise BadValue(f"the line ends before its {missing}: {','.join(fields[-1:])!r} is the last")
    engine, kind, impl, prop, tensors, attributes, aux, problem, *rest = fields
    pairs = dict(item.split(":", 1) for item in aux.split() if ":" in item)
    return OperationLine(
        library,
        event,
        engine,
        kind.removesuffix("_v2"),
        impl,
        prop,
        tuple(tensor for token in tensors.split() if (tensor := _tensor(token)) is not None),
        tuple(map(_attribute, attributes.split())),
        pairs,
        problem,
        _time(rest),
    )


def _time(rest: list[str]) -> float | None:
    if not rest:
        return None
    if len(rest) > 1 or not _STAMP.fullmatch(rest[0]):
        raise BadValue(f"{','.join(rest)!r} is no time in ms, which ends a line")
    return float(rest[0])


def _tensor(token: str) -> Tensor | None:
    """One descriptor; None for a tensor that is not there."""
    name, *parts = token.split(":")
    old = _OLD_NAME.fullmatch(name)
    if old is not None:
        name, parts = old[1], [old[2], *parts]
    if len(parts) < 2 or parts[0] not in TYPES:
        raise BadValue(f"cannot read the tensor {token!r}: expected NAME:TYPE:FLAGS:KIND:TAG::f0")
    data_type, letters, format_kind, tag, strides, *extra = (*parts, *[""] * 4)
    if data_type == "undef":
        return None
    if _LAST.fullmatch(strides):
        strides, extra = "", [strides, *extra]
    if not _STRIDES.fullmatch(strides):
        raise BadValue(f"cannot read the strides {strides!r} of the tensor {token!r}")
    numbers = ""
    if format_kind in _ENCODED:
        numbers, strides = strides, ""
    return Tensor(
        name, data_type, letters, format_kind, tag, strides, ":".join(extra).rstrip(":"), numbers
    )


def _attribute(part: str) -> tuple[str, str]:
    name, _, value = part.partition(":")
    if not name.startswith("attr-") and name != "rnn_data_qparams":
        raise BadValue(f"cannot read the attribute {part!r}: expected attr-NAME:VALUE")
    return name.removeprefix("attr-"), value
