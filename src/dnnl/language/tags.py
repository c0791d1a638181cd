"""Format tags of cases: those of the library, and the ones that hold for any number of dims."""

from __future__ import annotations

import re
from functools import cache

from dnnl.errors import InvalidArguments
from dnnl.language.errors import UnknownOption
from dnnl.language.values import Text
from dnnl.types.tag import FormatTag

_LETTERS = "abcdefghijkl"
_OPEN, _TRANSPOSED = "x", "y"
_SPECIAL = ("any", "undef")
_META_NDIMS = 5
_META_TOKEN = re.compile(r"[0-9]+[a-z]|[A-Za-z]")


@cache
def expand(tag: str, ndims: int) -> str:
    """The tag of a tensor with ``ndims`` dimensions.

    ``x`` means the letters behind the highest small one; then letters that name no dimension
    are cut, with their blocks: ``aBx16b`` is ``aBcd16b`` for four dimensions, ``axb`` is ``a`` for
    one. ``y`` is an ``x`` after which the last two letters are swapped: ``aby`` is ``abdc``. Other
    tags stay as they are.
    """
    if tag in _SPECIAL:
        return tag
    if _TRANSPOSED in tag:
        plain = expand(tag.replace(_TRANSPOSED, _OPEN), ndims)
        return re.sub(r"([A-Za-z])([A-Za-z])(?![A-Za-z])", r"\2\1", plain, count=1)
    if _OPEN not in tag:
        return tag
    named = [_LETTERS.index(letter) for letter in tag if letter in _LETTERS]
    rest = _LETTERS[max(named, default=-1) + 1 : ndims]
    dims = _LETTERS[:ndims]
    parts = _META_TOKEN.findall(tag.replace(_OPEN, rest))
    return "".join(part for part in parts if part[-1].lower() in dims)


def tag(value: str) -> Text:
    """A tag that exists, for any number of dims."""
    if _spelled(value):
        return Text(value)
    raise UnknownOption(f"unknown or invalid tag {value!r}")


@cache
def _spelled(value: str) -> bool:
    try:
        FormatTag(expand(value, _META_NDIMS))
    except InvalidArguments:
        return False
    return True
