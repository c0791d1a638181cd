"""Functions out of expressions of integers, which are texts: also those that a file has.

What is evaluated is arithmetic and nothing else. A text is parsed first, and each node of its tree
must be a number, a parameter, an operator of integers, a comparison, a tuple, or a call of min or
max. So no text can name a builtin, look up an attribute or build a string.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from dnnl.errors import Error

_NODES = frozenset(
    {
        *(ast.Load, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
        *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.And, ast.Or),
        *(ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
    }
)
_CHARACTERS = re.compile(r"[a-z0-9\[\](),+\-*/%<>=! ]*")
_DIGITS = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"[a-z]+[0-9]+")
_LONGEST = 2**20
_BUILTINS = {"min": min, "max": max}


class NoArithmetic(Error, ValueError):
    """A text that is no expression of integers."""


def function(parameters: Sequence[str], body: str) -> Callable[..., Any]:
    """The function of ``parameters`` that computes an expression, which is checked.

    Raises NoArithmetic for any other text.
    """
    check(body, frozenset(parameters))
    return trusted(f"lambda {','.join(parameters)}: ({body})")


def trusted(text: str) -> Callable[..., Any]:
    """The function that a text composed of checked expressions says."""
    try:
        made: Callable[..., Any] = eval(text, {"__builtins__": _BUILTINS})
    except SyntaxError as error:  # of numbers, as 007
        raise NoArithmetic(f"{text[:80]!r} is no expression of integers: {error}") from None
    return made


def check(text: object, names: frozenset[str]) -> None:
    """Raise NoArithmetic unless a text is an expression of the ``names`` and of integers.

    What differs in numbers alone, those of names included, is parsed once.
    """
    sound = isinstance(text, str) and len(text) <= _LONGEST and _CHARACTERS.fullmatch(text)
    if not sound or not isinstance(text, str) or not names.issuperset(_NUMBERED.findall(text)):
        raise NoArithmetic(
            f"{str(text)[:80]!r} is no expression of integers and {len(names)} names"
        )
    reason = _refusal(_DIGITS.sub("0", text), _without_numbers(names))
    if reason:
        raise NoArithmetic(f"{text[:80]!r} is no expression of integers: {reason}")


@lru_cache(maxsize=256)
def _without_numbers(names: frozenset[str]) -> frozenset[str]:
    return frozenset(_DIGITS.sub("0", name) for name in names)


@lru_cache(maxsize=4096)
def _refusal(text: str, names: frozenset[str]) -> str:
    """Why a text is no expression; empty if it is one."""
    try:
        stack: list[ast.AST] = [ast.parse(text, mode="eval").body]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Constant):
            sound = node.value.__class__ is int
        elif isinstance(node, ast.Name):
            sound = node.id in names
        elif isinstance(node, ast.Call):
            sound = _is_extreme(node)
            stack += node.args
        elif isinstance(node, ast.Subscript):
            sound = _is_number_of(node, names)
        else:
            sound = node.__class__ in _NODES
            stack += ast.iter_child_nodes(node)
        if not sound:
            return f"{node.__class__.__name__} is not allowed in arithmetic"
    return ""


def _is_extreme(call: ast.Call) -> bool:
    """Whether a call is min(...) or max(...)."""
    named = isinstance(call.func, ast.Name) and call.func.id in _BUILTINS
    starred = any(isinstance(own, ast.Starred) for own in call.args)
    return named and bool(call.args) and not call.keywords and not starred


def _is_number_of(item: ast.Subscript, names: frozenset[str]) -> bool:
    """Whether an item is one of a parameter at a known place."""
    place = item.slice
    known = isinstance(place, ast.Constant) and place.value.__class__ is int
    return known and isinstance(item.value, ast.Name) and item.value.id in names
