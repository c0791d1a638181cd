"""The values of options: one function for each kind, from its text to what it means.

A parser returns the meaning and raises ValueError. What a value looks like in a repro line is its
``str``, so that values which are not spelled as Python spells them are classes of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dnnl.types.dtype import DataType
from dnnl.types.kinds import float_text

Parser = Callable[[str], Any]

_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
DIRECTIONS = ("FWD_D", "FWD_B", "FWD_I", "BWD_D", "BWD_W", "BWD_WB", "BWD_DW")
TYPES = (
    "f32", "f16", "bf16", "f64", "s32", "s8", "u8", "s4", "u4",
    "f8_e5m2", "f8_e4m3", "e8m0", "f4_e2m1", "undef",
    "boolean", "s16", "s64", "u16", "u32", "u64",
)  # fmt: skip
ELSEWHERE = ("s2", "u2", "s3", "u3", "f4_e3m0")
"""Data types that oneDNN has, or had, and this library does not."""
MANY = range(1, 1025)
"""As many sources as there are arguments for."""


class Lacking(ValueError):
    """A value of the language for something that this library does not support."""


class Text(str):
    """A value that means its text."""


class Lacked(Text):
    """The text of an unsupported value; ``reason`` names it."""

    reason: str

    @staticmethod
    def of(text: str, reason: str) -> Lacked:
        """``text``, which cannot be done for ``reason``."""
        lacked = Lacked(text)
        lacked.reason = reason
        return lacked


class Named(Text):
    """The name of an algorithm in cases; ``alg`` is its name everywhere else."""

    alg: str

    @staticmethod
    def of(text: str, alg: str) -> Named:
        """``text`` for ``alg``."""
        named = Named(text)
        named.alg = alg
        return named


class OpenDims(Text):
    """The dims that only an execution knows; ``mask`` has a bit for each, and is -1 for all."""

    mask: int


class Number(float):
    """A float that prints as it does in a case."""

    def __str__(self) -> str:
        return float_text(self)


@dataclass(frozen=True, slots=True)
class Flag:
    """A truth value, ``true`` or ``false`` in texts."""

    on: bool

    def __bool__(self) -> bool:
        return self.on

    def __str__(self) -> str:
        return "true" if self.on else "false"


@dataclass(frozen=True, slots=True)
class Parts:
    """Values joined by a separator: ``f32:s8``, ``2x3``."""

    items: tuple[Any, ...]
    separator: str = ":"

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]

    def __str__(self) -> str:
        return self.separator.join(map(str, self.items))


def integer(text: str) -> int:
    """A whole number without sign of plus and without leading zeros."""
    if not _INTEGER.fullmatch(text):
        raise ValueError("expected a whole number")
    return int(text)


def number(text: str) -> Number:
    """A real number."""
    if "_" in text or text.strip() != text:
        raise ValueError("expected a number")
    return Number(float(text))


def flag(text: str) -> Flag:
    """0, 1, true or false."""
    if text not in ("0", "1", "true", "false"):
        raise ValueError("expected 0, 1, true or false")
    return Flag(text in ("1", "true"))


def text(value: str) -> Text:
    """Anything."""
    return Text(value)


def data_type(value: str) -> DataType:
    """The name of a data type; raises Lacking for one that only oneDNN has."""
    if value in ELSEWHERE:
        raise Lacking(f"there is no data type {value}")
    if value not in TYPES:
        raise ValueError(f"expected one of {', '.join(TYPES)}")
    return DataType[value]


_OPEN_DIMS = {"none": 0, "batch": 1, "channels": 2, "spatial": ~3, "all": -1}


def open_dims(value: str) -> OpenDims:
    """Names of dims joined by ``+``, or a mask: batch is the first one, channels are the second."""
    dims = OpenDims(value)
    if value.isdigit():
        dims.mask = integer(value)
        return dims
    dims.mask = 0
    for name in value.split("+"):
        if name not in _OPEN_DIMS:
            known = ", ".join(_OPEN_DIMS)
            raise ValueError(f"expected a mask of dims, or {known}, several joined by +")
        dims.mask |= _OPEN_DIMS[name]
    return dims


def positive(value: str) -> int:
    """A whole number of at least 1."""
    found = integer(value)
    if found < 1:
        raise ValueError("expected a number of at least 1")
    return found


def one_of(*names: str) -> Parser:
    """One of ``names``, exactly."""

    def parse(value: str) -> Text:
        if value not in names:
            raise ValueError(f"expected one of {', '.join(name or 'nothing' for name in names)}")
        return Text(value)

    return parse


def matching(pattern: str, form: str) -> Parser:
    """Text that a regular expression matches; ``form`` describes it in messages."""

    def parse(value: str) -> Text:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {form}")
        return Text(value)

    return parse


def any_case(*names: str) -> Parser:
    """One of ``names``, in capitals or not; the value is spelled as in ``names``."""
    spelled = {name.lower(): Text(name) for name in names}

    def parse(value: str) -> Text:
        found = spelled.get(value.lower())
        if found is None:
            raise ValueError(f"expected one of {', '.join(names)}")
        return found

    return parse


direction = any_case(*DIRECTIONS)
"""The propagation of a case."""


def several(item: Parser, counts: Iterable[int] = MANY, separator: str = ":") -> Parser:
    """Items with a colon between them, as many as ``counts`` allows."""
    allowed = tuple(counts)

    def parse(value: str) -> Parts:
        items = tuple(item(part) for part in value.split(separator))
        if len(items) not in allowed:
            raise ValueError(f"expected {allowed[0]} to {allowed[-1]} parts")
        return Parts(items, separator)

    return parse


def letters(known: str) -> Parser:
    """Flags, each a letter out of ``known``, in any order; shown in the order of ``known``."""

    def parse(value: str) -> Text:
        if set(value) - set(known):
            raise ValueError(f"expected letters out of {known}")
        return Text("".join(letter for letter in known if letter in value))

    return parse


def sizes(value: str) -> tuple[int, ...]:
    """Dimensions as ``2x3x4``."""
    return tuple(int(part) for part in value.split("x") if _digits(part))


def _digits(part: str) -> bool:
    if not re.fullmatch(r"-?[0-9]+", part):
        raise ValueError("expected sizes with an x between them")
    return True
