"""Format tags: the names of memory layouts, read by rule.

A tag lists the dimensions from the outermost to the innermost, by letter. In canonical form
``a`` is logical dimension 0, ``b`` dimension 1 and so on up to ``l``. A capital says that the
dimension is also blocked; its blocks follow, outermost first, as a size and a letter::

    abcd            row-major, 4 dimensions
    acdb            dimension 1 innermost
    aBcd16b         dimension 1 split into blocks of 16, innermost
    ABcd4b16a4b     16a4b inside 4b: dimension 1 is blocked twice, 16 = 4 * 4

Domain letters spell the same by meaning: n batch, c channel, o and i output and input channel,
g groups, d h w spatial, t time, l layer, d direction, g gate. ``nChw16c`` is ``aBcd16b``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NoReturn

from dnnl.errors import InvalidArguments

MAX_NDIMS = 12
"""The most dimensions of a tensor, and the most inner blocks of a layout."""

_LETTERS = "abcdefghijkl"
_SPATIAL = ("", "w", "hw", "dhw")
_DOMAINS = (
    "x",
    "tnc",
    "ldnc",
    "ldio",
    "ldgo",
    "ldigo",
    *("nc" + spatial for spatial in _SPATIAL),
    *("oi" + spatial for spatial in _SPATIAL),
    *("goi" + spatial for spatial in _SPATIAL),
)
"""Every domain in logical order. No domain has the letter a, so none looks canonical."""

_AXES: dict[frozenset[str], str] = {frozenset(axes): axes for axes in _DOMAINS}
_AXES.update((frozenset(_LETTERS[:n]), _LETTERS[:n]) for n in range(1, MAX_NDIMS + 1))

_GRAMMAR = re.compile(r"([A-Za-z]+)((?:[1-9][0-9]*[A-Za-z])*)")
_BLOCK = re.compile(r"([0-9]+)([A-Za-z])")
_KNOWN = re.findall(
    r"\w+",
    """
    any nc cn ncw nwc nchw nhwc chwn ncdhw ndhwc nCw16c nChw8c nChw16c nCdhw16c NChw16n16c
    oi io oiw wio oihw hwio oidhw dhwio OIhw16i16o OIhw4i16o4i goihw hwigo gOIhw16i16o Goihw16g
    tnc ntc ldnc ldigo ldgoi ldio ldoi ldgo x a ab ba abc acb abcd acdb abcde acdeb aBcd16b
    """,
)
"""Spellings to choose a hint from; what may be spelled is the rule above."""


class _TagClass(type):
    """Makes every spelling an attribute: ``FormatTag.nchw``."""

    def __getattr__(cls, name: str) -> FormatTag:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return FormatTag(name)
        except InvalidArguments as error:
            raise AttributeError(str(error)) from None


class FormatTag(metaclass=_TagClass):
    """A layout's name. Equal layouts are one object, whatever they were spelled as.

    ``name`` is the canonical spelling, ``order`` the dimensions from outermost to innermost and
    ``inner_blocks`` pairs of (dimension, size), outermost first. ``any`` (the library chooses)
    and ``undef`` (no layout) have no dimensions.
    """

    __slots__ = ("__weakref__", "inner_blocks", "name", "ndims", "order")

    name: str
    ndims: int
    order: tuple[int, ...]
    inner_blocks: tuple[tuple[int, int], ...]

    def __new__(cls, name: str | FormatTag) -> FormatTag:
        if isinstance(name, FormatTag):
            return name
        spelling: object = name
        known = _SPELLED.get(spelling) if isinstance(spelling, str) else None
        return known or _spell(spelling)

    @classmethod
    def of(cls, order: Sequence[int], inner_blocks: Sequence[tuple[int, int]] = ()) -> FormatTag:
        """Return the tag of an order of dimensions and inner blocks (dimension, size)."""
        try:
            blocks = [(_LETTERS[dim], int(size)) for dim, size in inner_blocks]
            letters = [_LETTERS[dim] for dim in order]
        except (TypeError, ValueError, IndexError, OverflowError):
            rule = "expected dimensions, and pairs of a dimension and a size"
            raise InvalidArguments("order", (order, inner_blocks), rule) from None
        blocked = {letter for letter, _ in blocks}
        outer = "".join(letter.upper() if letter in blocked else letter for letter in letters)
        return FormatTag(outer + "".join(f"{size}{letter}" for letter, size in blocks))

    @property
    def is_plain(self) -> bool:
        """Whether the tag names dimensions and no dimension is blocked."""
        return self.ndims > 0 and not self.inner_blocks

    def block_sizes(self) -> tuple[int, ...]:
        """Return the product of the inner blocks of each logical dimension."""
        return block_sizes(self.ndims, self.inner_blocks)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"FormatTag is immutable, {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"FormatTag is immutable, {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[type[FormatTag], tuple[str]]:
        return FormatTag, (self.name,)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"FormatTag({self.name!r})"


@lru_cache(maxsize=4096)
def block_sizes(ndims: int, inner_blocks: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """Return the product of the inner blocks of each of ``ndims`` dimensions."""
    sizes = [1] * ndims
    for dim, size in inner_blocks:
        sizes[dim] *= size
    return tuple(sizes)


_SPELLED: dict[str, FormatTag] = {}
"""Every spelling seen so far; a canonical name is the key of the one object with that layout."""


def _make(
    name: str, order: tuple[int, ...], inner_blocks: tuple[tuple[int, int], ...]
) -> FormatTag:
    """Return the object of canonical ``name``, creating it the first time (thread-safe)."""
    tag = object.__new__(FormatTag)
    values = (("name", name), ("ndims", len(order)), ("order", order))
    for field, value in (*values, ("inner_blocks", inner_blocks)):
        object.__setattr__(tag, field, value)
    return _SPELLED.setdefault(name, tag)


def _spell(text: object) -> FormatTag:
    """Parse a spelling met for the first time."""
    if not isinstance(text, str):
        rule = "expected a format tag or its name"
        raise InvalidArguments("tag", text, rule, "for example 'nchw', 'aBcd16b' or 'any'")
    matched = _GRAMMAR.fullmatch(text)
    if matched is None:
        _refuse(text, "a tag is letters followed by blocks such as 16c")
    outer, tail = matched.groups()
    letters = outer.lower()
    axes = _AXES.get(frozenset(letters))
    if axes is None or len(axes) != len(letters):
        _refuse(text, _why_unknown(letters))
    blocks = [(int(size), letter) for size, letter in _BLOCK.findall(tail)]
    _check_blocks(text, outer, blocks, axes)
    order = tuple(axes.index(letter) for letter in letters)
    inner = tuple((axes.index(letter), size) for size, letter in blocks)
    blocked = {dim for dim, _ in inner}
    name = "".join(_LETTERS[dim].upper() if dim in blocked else _LETTERS[dim] for dim in order)
    name += "".join(f"{size}{_LETTERS[dim]}" for dim, size in inner)
    return _SPELLED.setdefault(text, _make(name, order, inner))


def _check_blocks(text: str, outer: str, blocks: list[tuple[int, str]], axes: str) -> None:
    """Check inner blocks against the outer part of a tag."""
    if len(blocks) > MAX_NDIMS:
        _refuse(text, f"at most {MAX_NDIMS} inner blocks")
    for size, letter in blocks:
        if letter not in axes:
            _refuse(text, f"the block {size}{letter} needs a small letter out of {outer.lower()!r}")
        if not 2 <= size < 2**31:
            _refuse(text, f"the block {size}{letter} must be at least 2 and less than 2**31")
    blocked = {letter for _, letter in blocks}
    right = "".join(c.upper() if c.lower() in blocked else c.lower() for c in outer)
    if right != outer:
        tail = text[len(outer) :]
        rule = "a dimension is a capital exactly if it has an inner block"
        raise InvalidArguments("tag", text, rule, f"did you mean {right + tail!r}?")


def _why_unknown(letters: str) -> str:
    """Say why ``letters``, in lower case, are not the dimensions of any domain."""
    for letter in letters:
        if letters.count(letter) > 1:
            return f"the dimension {letter!r} is named twice"
    if "a" in letters:
        if len(letters) > MAX_NDIMS:
            return f"at most {MAX_NDIMS} dimensions"
        missing = next((c for c in _LETTERS[: len(letters)] if c not in letters), "")
        last = _LETTERS[len(letters) - 1]
        return f"{len(letters)} dimensions are the letters a to {last}, {missing!r} is missing"
    return f"no domain has the dimensions {letters!r}"


def _refuse(text: str, rule: str) -> NoReturn:
    """Raise InvalidArguments for a tag, with the closest known spellings."""
    close = difflib.get_close_matches(text, _KNOWN, n=3, cutoff=0.5)
    hint = " or ".join(repr(name) for name in close)
    hint = f"did you mean {hint}?" if hint else "for example 'nchw', 'aBcd16b' or 'any'"
    raise InvalidArguments("tag", text, rule, hint)


def suggest_for(text: str, ndims: int) -> str:
    """Return the known spelling with ``ndims`` dimensions that is closest to ``text``."""
    fitting = [name for name in _KNOWN if FormatTag(name).ndims == ndims]
    close = difflib.get_close_matches(text, fitting, n=1, cutoff=0.0)
    return close[0] if close else _LETTERS[:ndims]


_make("any", (), ())
_make("undef", (), ())
