"""The tensors of a verbose line: their dims, which follow from the problem, and their layouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dnnl.errors import Error
from dnnl.language.descriptor import SPATIAL, Descriptor
from dnnl.language.errors import BadValue
from dnnl.language.options import Problem
from dnnl.language.problem import Sizes
from dnnl.language.verbose import OperationLine, Tensor
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import describe
from dnnl.tools.bench.drivers import KINDS
from dnnl.tools.layout_grid import axes_of, formula
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_PLAIN = "abcdefghijkl"


@dataclass(frozen=True)
class Placed:
    """A tensor with all that the line tells of it: ``desc`` and ``letters`` of its dimensions.

    ``desc`` is None where the dims do not follow from the line or its layout is of no known kind.
    """

    tensor: Tensor
    desc: MemoryDesc | None
    letters: Sequence[str]


def problem(line: OperationLine) -> Problem | None:
    """The sizes of a line; None where they have another notation or only execution knows them.

    Raises BadValue for sizes that cannot be read.
    """
    driver = KINDS.get(line.kind)
    if driver is None or "*" in line.problem or str(RUNTIME_DIM) in line.problem:
        return None
    return driver.problem.parse(driver.problem.from_line(line.problem))


def placed(line: OperationLine) -> list[Placed]:
    """Every tensor with its dims and its place in memory, as far as the line says."""
    shapes = _shapes(line)
    found = []
    seen: Counter[str] = Counter()
    for tensor in line.tensors:
        base = _OLD.get(tensor.name, tensor.name.removeprefix("diff_"))
        known = shapes.get(base, ())
        shape = known[min(seen[base], len(known) - 1)] if known else None
        seen[base] += 1
        found.append(Placed(tensor, *_place(tensor, shape)))
    return found


def flops(line: OperationLine) -> int:
    """Multiplications and additions of a sum of products; 0 for all other operations."""
    desc = _described(line)
    return 0 if desc is None else desc.operation.flops(desc)


class _Shape(NamedTuple):
    """The dims of a tensor, and the letter of each by its meaning."""

    dims: Sizes
    letters: Sequence[str]


_OLD = {"data": "src", "src_a": "src", "src_b": "wei", "stat": "stats"}
"""Names that tensors had in version 2."""


def _shapes(line: OperationLine) -> dict[str, list[_Shape]]:
    """The shapes of the tensors by name, gradients under the names of their tensors."""
    found: dict[str, list[_Shape]] = {}
    sizes = problem(line)
    desc = _described(line)
    if desc is None or sizes is None:
        return found
    for tensor in desc.tensors:
        name, dims = tensor.name.removeprefix("diff_"), tensor.desc.dims
        letters = _letters(desc.operation.role(tensor.argument).letters, dims, sizes)
        found.setdefault(name, []).append(_Shape(dims, letters))
    return found


def _described(line: OperationLine) -> Desc | None:
    """The operation with the sizes and parameters of a line, types and layouts left aside, and the
    direction too where there is none such here."""
    driver, kind = KINDS.get(line.kind), OPERATIONS.get(line.kind)
    if driver is None or kind is None or problem(line) is None:
        return None
    known = line.prop in {passed.name for passed in kind.operation.passes}
    options = [
        option
        for option in driver.options
        if not option.layout and (known or option is not driver.propagation)
    ]
    values = [(option.name, option.from_line(line)) for option in options]
    given = [f"--{name}={value}" for name, value in values if value is not None]
    problem_text = driver.problem.from_line(line.problem)
    (case,) = Interpreter().cases([f"--{driver.name}", *given, problem_text])
    try:
        return describe(case, kind)
    except Error as error:
        raise BadValue(
            f"the sizes {line.problem!r} of a {line.kind} do not agree: {error}"
        ) from None


def _letters(pattern: str, dims: Sizes, sizes: Problem) -> Sequence[str]:
    """The letters of the dimensions: a star means the spatial ones, or for a, b, ... where it
    comes first; a letter in brackets for a dimension of groups, if there are such."""
    grouped = isinstance(sizes, Descriptor) and sizes.grouped
    named = pattern.replace("[g]", "g" if grouped else "")
    rest = len(dims) - len(named) + 1
    if named.startswith("*"):
        return _PLAIN[:rest] + named[1:]
    if named.endswith("*") and 0 <= rest <= len(SPATIAL):
        return named[:-1] + SPATIAL[len(SPATIAL) - rest :]
    return named if len(named) == len(dims) else _PLAIN[: len(dims)]


def _place(tensor: Tensor, shape: _Shape | None) -> tuple[MemoryDesc | None, Sequence[str]]:
    if shape is None or tensor.format_kind != "blocked":
        return None, ()
    try:
        tag = FormatTag(tensor.tag)
        if tag.ndims != len(shape.dims):
            return None, ()
        if not tensor.strides:
            desc = MemoryDesc(shape.dims, tensor.data_type, tag)
        else:
            strides = [int(stride) for stride in tensor.strides.split("x")]
            blocks = tag.inner_blocks
            desc = MemoryDesc(shape.dims, tensor.data_type, strides, inner_blocks=blocks)
    except (Error, ValueError) as error:
        raise BadValue(f"cannot read the layout of {tensor.name}: {error}") from None
    return desc, shape.letters


def layout(item: Placed) -> str:
    """The layout in prose: its name, the order of the dimensions, what is stored with them."""
    tensor = item.tensor
    if tensor.format_kind == "any" or (tensor.tag == "any"):
        return "in any layout that the library likes"
    if tensor.format_kind != "blocked":
        return f"in the form {tensor.format_kind} of the library's own"
    parts = [_order(item)]
    if tensor.strides:
        parts.append(f"with gaps: strides {tensor.strides}")
    if item.desc is not None and item.desc.padded_dims != item.desc.dims:
        padded = "x".join(map(str, item.desc.padded_dims))
        parts.append(f"padded to {padded}")
    if "0" in tensor.letters or "o" in tensor.letters:
        parts.append("does not begin at the start of its buffer")
    for name, mask in tensor.compensated.items():
        what = {"s8m": "s8 sources", "zpm": "zero points of src"}[name]
        parts.append(f"followed by compensation for {what} (mask {mask})")
    if "a" in tensor.letters:
        parts.append("chosen by the library")
    return ", ".join(parts)


def _order(item: Placed) -> str:
    """The order of the dimensions from the outermost to the innermost."""
    name = item.tensor.tag
    if name == "*":
        return "in a layout that only the execution knows"
    try:
        tag = FormatTag(name)
    except Error:
        return f"{name}, which no rule of names spells"
    letters = item.letters or _PLAIN[: tag.ndims]
    spelled = _spelled(tag, letters)
    shown = f"{name} = {spelled}" if spelled != name else name
    if tag.inner_blocks:
        sizes = tag.block_sizes()
        outer = [letters[d] + (f"/{sizes[d]}" if sizes[d] > 1 else "") for d in tag.order]
        inner = [f"{size}{letters[d]}" for d, size in tag.inner_blocks]
        return f"{shown}: blocks, outermost first {', '.join([*outer, *inner])}"
    if tag.ndims < 2:
        return shown
    if list(tag.order) == sorted(tag.order):
        return f"{shown}: row-major"
    if "".join(letters[:2]) == "nc" and tag.order == (0, *range(2, tag.ndims), 1):
        return f"{shown}: channels last"
    return f"{shown}: outermost {letters[tag.order[0]]}, innermost {letters[tag.order[-1]]}"


def _spelled(tag: FormatTag, letters: Sequence[str]) -> str:
    """The tag in the letters of its domain."""
    blocked = {dim for dim, _ in tag.inner_blocks}
    outer = "".join(letters[d].upper() if d in blocked else letters[d] for d in tag.order)
    return outer + "".join(f"{size}{letters[dim]}" for dim, size in tag.inner_blocks)


def offset(item: Placed) -> str:
    """The place of an element as arithmetic on its coordinates; empty where it is not known."""
    if item.desc is None or item.desc.has_zero_dim or item.desc.ndims < 2:
        return ""
    return formula(axes_of(item.desc, FormatTag(item.tensor.tag)), item.letters)
