"""Functions out of expressions of integers, which are texts: also those that a file has.

What is evaluated is arithmetic and nothing else. A text is parsed first, and each node of its tree
must be a number, a parameter, an operator of integers, a comparison, a tuple, or a call of min or
max. So no text can name a builtin, look up an attribute or build a string.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from dnnl.errors import Error

_NODES = frozenset(
    {
        *(ast.Expression, ast.Load, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare),
        *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.And, ast.Or),
        *(ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
    }
)
_CHARACTERS = re.compile(r"[a-z0-9\[\](),+\-*/%<>=! ]*")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_LONGEST = 2**20
_BUILTINS = {"min": min, "max": max}


class NoArithmetic(Error, ValueError):
    """A text that is no expression of integers."""


def function(parameters: Sequence[str], body: str) -> Callable[..., Any]:
    """The function of ``parameters`` that computes an expression, which is checked.

    Raises NoArithmetic for any other text.
    """
    check(body, parameters)
    return trusted(f"lambda {','.join(parameters)}: ({body})")


def trusted(text: str) -> Callable[..., Any]:
    """The function that a text composed of checked expressions says."""
    made: Callable[..., Any] = eval(text, {"__builtins__": _BUILTINS})
    return made


def check(text: object, names: Collection[str]) -> None:
    """Raise NoArithmetic unless a text is an expression of the ``names`` and of integers."""
    if not isinstance(text, str):
        raise NoArithmetic(f"{str(text)[:80]!r} is no expression of integers")
    if _NUMBER.fullmatch(text) or text in names:
        return
    if len(text) > _LONGEST or not _CHARACTERS.fullmatch(text):
        raise NoArithmetic(f"{str(text)[:80]!r} is no expression of integers")
    try:
        stack: list[ast.AST] = [ast.parse(text, mode="eval").body]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoArithmetic(f"{text[:80]!r} is no expression of integers: {error}") from None
    while stack:
        node = stack.pop()
        kind = node.__class__
        if kind is ast.Constant:
            sound = node.value.__class__ is int  # type: ignore[attr-defined]
        elif kind is ast.Name:
            sound = node.id in names  # type: ignore[attr-defined]
        elif kind is ast.Call:
            sound = _is_extreme(node)  # type: ignore[arg-type]
            stack += node.args  # type: ignore[attr-defined]
        elif kind is ast.Subscript:
            sound = _is_number_of(node, names)  # type: ignore[arg-type]
        else:
            sound = kind in _NODES
            stack += ast.iter_child_nodes(node)
        if not sound:
            rule = f"{kind.__name__} is not allowed in arithmetic"
            raise NoArithmetic(f"{text[:80]!r} is no expression of integers: {rule}")


def _is_extreme(call: ast.Call) -> bool:
    """Whether a call is min(...) or max(...)."""
    named = isinstance(call.func, ast.Name) and call.func.id in _BUILTINS
    starred = any(isinstance(own, ast.Starred) for own in call.args)
    return named and bool(call.args) and not call.keywords and not starred


def _is_number_of(item: ast.Subscript, names: Collection[str]) -> bool:
    """Whether an item is one of a parameter at a known place."""
    place = item.slice
    known = isinstance(place, ast.Constant) and place.value.__class__ is int
    return known and isinstance(item.value, ast.Name) and item.value.id in names
