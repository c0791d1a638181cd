"""Problems given as keys with numbers: ``mb2ic16ih14oc32kh3ph1n"name"``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dnnl.language.errors import BadValue
from dnnl.types.kinds import float_text

SPATIAL = "dhw"
IMAGE = tuple(f"i{letter}" for letter in SPATIAL)
OUTPUT = tuple(f"o{letter}" for letter in SPATIAL)
WINDOW = (*IMAGE, *OUTPUT, *(f"{key}{letter}" for key in "kspd" for letter in SPATIAL))
"""The sizes of a window that slides over an image."""
_NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?)"


@dataclass(frozen=True)
class Grammar:
    """What the descriptors of a driver may say.

    ``head`` and ``tail`` are the keys without a letter of space before and behind it, ``spatial``
    those with one, in the order in which a problem is written. ``need`` must be above 0;
    ``lowest`` is the least number of dims.
    """

    head: tuple[str, ...]
    spatial: tuple[str, ...] = IMAGE
    tail: tuple[str, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)
    need: tuple[str, ...] = ("ic",)
    lowest: int = 2
    window: str = ""
    """How a missing output size follows: ``down`` as convolutions, ``up`` as their transposes."""
    follows: Mapping[str, str] = field(default_factory=dict)
    """The key whose number each of these has where it is not given."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key."""
        return (*self.head, *self.spatial, *self.tail)

    def parse(self, token: str) -> Descriptor:
        """Read a problem; raises BadValue."""
        return _parse(self, token)

    def from_line(self, text: str) -> str:
        """The problem as a case writes it, out of that of a verbose line."""
        return text


_FLOATS = ("eps", "alpha", "beta", "k")


@dataclass(frozen=True)
class Descriptor:
    """A problem's numbers by key, with all that follows from the given ones filled in."""

    grammar: Grammar
    ndims: int
    numbers: Mapping[str, float]
    name: str = ""

    def __getitem__(self, key: str) -> int:
        return int(self.numbers[key])

    def spatial(self, key: str) -> tuple[int, ...]:
        """The sizes of ``key`` (i, o, k, s, p, d) in the dimensions that the problem has."""
        return tuple(self[key + letter] for letter in SPATIAL[5 - self.ndims :])

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension for groups."""
        return "g" in self.numbers

    @property
    def groups(self) -> int:
        """The number of groups."""
        return int(self.numbers.get("g", 1))

    @property
    def src_dims(self) -> tuple[int, ...]:
        """Batch, channels and space."""
        return (self["mb"], self["ic"], *self.spatial("i"))

    @property
    def window_dims(self) -> tuple[int, ...]:
        """Batch, output channels, if there are such, and the space that windows make."""
        channels = self["oc"] if "oc" in self.numbers else self["ic"]
        return (self["mb"], channels, *self.spatial("o"))

    @property
    def padding_r(self) -> tuple[int, ...]:
        """What a convolution or a pooling is padded with behind, or the result of a transpose.

        Where the last window ends before the source does, less than a step, that is nothing.
        """
        keys = "oikspd" if self.grammar.window == "up" else "iokspd"
        columns = zip(*(self.spatial(key) for key in keys), strict=True)
        needed = [((o - 1) * s - i + (k - 1) * (d + 1) + 1 - p, s) for i, o, k, s, p, d in columns]
        return tuple(0 if -step < pad < 0 else pad for pad, step in needed)

    def with_batch(self, batch: int) -> Descriptor:
        """The problem with another batch size."""
        return replace(self, numbers={**self.numbers, "mb": batch})

    @property
    def text(self) -> str:
        """The problem as a case writes it; height and width where they differ."""
        grammar = self.grammar
        parts = [f"{key}{self[key]}" for key in self._head(grammar)]
        shown = self._letters()
        order = [key for key in "iokspd" if f"{key}d" in grammar.spatial]
        for key in order:
            if key == "o" and "oc" in self.numbers:
                parts.append(f"oc{self['oc']}")
            if not (key in "sd" and set(self.spatial(key)) <= {int(key == "s")}):
                parts += [f"{key}{letter}{self[key + letter]}" for letter in shown]
        if "o" not in order and "oc" in self.numbers:
            parts.append(f"oc{self['oc']}")
        for key in grammar.tail:
            if self.numbers[key] != grammar.defaults[key]:
                parts.append(f"{key}{float_text(self.numbers[key])}")
        return "".join(parts) + (f"n{self.name}" if self.name else "")

    def _head(self, grammar: Grammar) -> list[str]:
        keys = [key for key in grammar.head if key in self.numbers and key != "oc"]
        return [key for key in keys if key != "mb" or self["mb"] != 2]

    def _letters(self) -> str:
        """The spatial letters that must be written: one that equals the one before is left out."""
        letters = SPATIAL[5 - self.ndims :]
        grammar = self.grammar
        keys = [key for key in "iokspd" if f"{key}d" in grammar.spatial]
        same = all(len(set(self.spatial(key))) == 1 for key in keys) if letters else True
        return letters[:1] if same else letters


def _parse(grammar: Grammar, token: str) -> Descriptor:
    given, name = _read(grammar, token)
    _drop_absent(grammar, given)
    numbers: dict[str, float] = {"mb": 2, **grammar.defaults, **given}
    for key, other in grammar.follows.items():
        if other in numbers:
            numbers.setdefault(key, numbers[other])
    for letter in SPATIAL:
        if f"i{letter}" in grammar.spatial:
            _deduce(token, grammar, numbers, letter)
    ndims = _spread(token, grammar, numbers)
    if ndims < grammar.lowest:
        raise BadValue(f"problem {token!r}: it has no spatial sizes")
    _check(token, grammar, numbers, given)
    return Descriptor(grammar, ndims, numbers, name)


def _read(grammar: Grammar, token: str) -> tuple[dict[str, float], str]:
    """The given numbers and the name."""
    keys = "|".join(sorted(grammar.keys, key=len, reverse=True))
    pair = re.compile(f"_?({keys}){_NUMBER}")
    given: dict[str, float] = {}
    place = 0
    while place < len(token):
        named = re.compile("_?n").match(token, place)
        if named:
            return given, token[named.end() :]
        matched = pair.match(token, place)
        if matched is None:
            raise BadValue(f"problem {token!r}: cannot read {token[place:]!r}")
        key, digits = matched.groups()
        if key not in _FLOATS and not digits.isdigit():
            raise BadValue(f"problem {token!r}: {key} is a whole number")
        given[key] = float(digits) if key in _FLOATS else int(digits)
        place = matched.end()
    return given, ""


def _drop_absent(grammar: Grammar, numbers: dict[str, float]) -> None:
    """Forget what is said of dimensions that the problem does not have: steps, dilations, kernels
    and paddings of what has no size."""
    for letter in SPATIAL:
        if not any(f"{key}{letter}" in numbers for key in "io"):
            for key in grammar.spatial:
                if key[1] == letter:
                    numbers.pop(key, None)


def _deduce(token: str, grammar: Grammar, numbers: dict[str, float], letter: str) -> None:
    """Fill in what follows for one spatial letter if its input size is given."""
    i, o, k, s, p, d = (f"{key}{letter}" for key in "iokspd")
    mentioned = i in numbers
    if not grammar.window:
        if mentioned != (o in numbers) and o in grammar.spatial:
            raise BadValue(f"problem {token!r}: {i} and {o} need each other")
        return
    any_given = any(key in numbers for key in (i, o, k, s, p, d))
    if any_given:
        numbers.setdefault(s, 1)
        numbers.setdefault(d, 0)
    if not mentioned or k not in numbers or not numbers[s]:
        return
    source, reach, step = numbers[i], (numbers[k] - 1) * (numbers[d] + 1) + 1, numbers[s]
    if o not in numbers:
        numbers.setdefault(p, 0)
        padding = 2 * numbers[p]
        if grammar.window == "down":
            numbers[o] = (source - reach + padding) // step + 1
        else:
            numbers[o] = (source - 1) * step + reach - padding
    elif p not in numbers:
        low, high = (source, numbers[o]) if grammar.window == "down" else (numbers[o], source)
        numbers[p] = int(((high - 1) * step - low + reach) / 2)


def _spread(token: str, grammar: Grammar, numbers: dict[str, float]) -> int:
    """Copy the sizes of one spatial letter to the missing ones; the number of dims."""
    have = [letter for letter in SPATIAL if f"i{letter}" in numbers]
    copies = {"d": {"h": "d", "w": "d"}, "h": {"w": "h"}, "dhw": {}, "hw": {}, "w": {}, "": {}}
    if "".join(have) not in copies:
        raise BadValue(f"problem {token!r}: a depth goes alone or with both height and width")
    for to, source in copies["".join(have)].items():
        for key in grammar.spatial:
            if key[1] == source and key in numbers:
                numbers[key[0] + to] = numbers[key]
    return 2 + len(SPATIAL[SPATIAL.index(have[0]) :] if have else "")


def _check(
    token: str, grammar: Grammar, numbers: Mapping[str, float], given: Mapping[str, float]
) -> None:
    """Raise unless the sizes that a problem needs are there and positive."""
    shown = [key for key in given if key[0] in "ik" and key in grammar.spatial]
    for key in (*grammar.need, *shown):
        if not numbers.get(key):
            raise BadValue(f"problem {token!r}: {key} must be given and positive")
    for letter in SPATIAL:
        wanted = [key + letter for key in "okp" if key + letter in grammar.spatial]
        for key in wanted if f"i{letter}" in numbers else ():
            if key not in numbers or (key[0] != "p" and numbers[key] <= 0):
                raise BadValue(f"problem {token!r}: {key} must be given and positive")
    groups = numbers.get("g", 1)
    if groups <= 0 or numbers.get("ic", 0) % groups or numbers.get("oc", 0) % groups:
        raise BadValue(f"problem {token!r}: g must divide the channels")
