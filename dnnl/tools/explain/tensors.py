"""The tensors of a verbose line: their dims, which follow from the problem, and their layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dnnl.errors import Error
from dnnl.tools.bench.descriptor import SPATIAL, Descriptor
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.options import DRIVERS, Problem
from dnnl.tools.bench.problem import Dims, Shapes
from dnnl.tools.bench.verbose_line import driver_of, problem_of
from dnnl.tools.bench.verbose_syntax import OperationLine, Tensor
from dnnl.tools.layout_grid import axes_of, formula
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag

_MATRIX = 2
_WEIGHTED = ("convolution", "deconvolution", "inner_product")
_CHANNELS = (*_WEIGHTED, "pooling", "resampling", "batch_normalization", "lrn")
_PLAIN = "abcdefghijkl"
_PER_CHANNEL = ("mean", "variance", "scale", "shift", "stats", "stat", "scaleshift")


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
    driver = driver_of(line.kind)
    if driver is None or "*" in line.problem or str(RUNTIME_DIM) in line.problem:
        return None
    return DRIVERS[driver].problem(problem_of(line))


def placed(line: OperationLine) -> list[Placed]:
    """Every tensor with its dims and its place in memory, as far as the line says."""
    sizes = problem(line)
    found = []
    sources = 0
    for tensor in line.tensors:
        base = tensor.name.removeprefix("diff_")
        dims = None if sizes is None else _dims(line, tensor, sizes, sources)
        sources += base in ("src", "data", "src_a", "src_b")
        found.append(Placed(tensor, *_place(line, base, tensor, dims)))
    return found


def flops(line: OperationLine, tensors: Sequence[Placed]) -> int:
    """Multiplications and additions of a sum of products; 0 for all other operations."""
    sizes = {item.tensor.name.removeprefix("diff_"): item.desc for item in tensors}
    dst = sizes.get("dst")
    if dst is None or line.kind not in (*_WEIGHTED, "matmul"):
        return 0
    if line.kind == "matmul":
        src = sizes.get("src")
        return 0 if src is None else 2 * dst.nelems() * src.dims[-1]
    weights, src = sizes.get("wei"), sizes.get("src")
    if weights is None or src is None:
        return 0
    grouped = weights.ndims > dst.ndims
    channels = weights.dims[1:] if grouped else weights.dims
    if line.kind == "deconvolution":
        return 2 * src.nelems() * channels[0] * prod(channels[2:])
    return 2 * dst.nelems() * prod(channels[1:])


def _dims(line: OperationLine, tensor: Tensor, sizes: Problem, number: int) -> Dims | None:
    """The dims of one tensor; ``number`` sources stand before it."""
    base = tensor.name.removeprefix("diff_")
    if isinstance(sizes, Shapes):
        return _listed(line, base, tensor, sizes, number)
    return _described(line, base, sizes)


def _listed(
    line: OperationLine, base: str, tensor: Tensor, sizes: Shapes, number: int
) -> Dims | None:
    """The dims where a problem lists tensors."""
    tensors = sizes.padded
    if base in _PER_CHANNEL:
        return sizes.dims[:-1] if base.startswith("stat") else sizes.dims[-1:]
    if line.kind == "matmul":
        if min(map(len, tensors)) < _MATRIX:
            raise BadValue(f"problem {line.problem!r}: matrices have two dimensions at least")
        return _matrix(base, tensor, tensors)
    if line.kind in ("binary", "concat", "sum") and base == "src":
        return tensors[number if len(tensors) > 1 else 0]
    if line.kind == "binary":
        return sizes.result
    if line.kind == "concat":
        text = line.aux.get("axis", "0")
        axis = int(text) if text.isdigit() else len(tensors[0])
        if axis >= len(tensors[0]):
            raise BadValue(f"axis {text!r} is none of the dimensions of {line.problem!r}")
        total = sum(dims[axis] for dims in tensors)
        return (*tensors[0][:axis], total, *tensors[0][axis + 1 :])
    second = {"prelu": "wei", "reduction": "dst"}.get(line.kind)
    return tensors[1] if base == second else tensors[0]


def _matrix(base: str, tensor: Tensor, tensors: Sequence[Dims]) -> Dims | None:
    src, weights = tensors
    batch = tuple(max(pair) for pair in zip(src[:-2], weights[:-2], strict=True))
    dst = (*batch, src[-2], weights[-1])
    if base == "bia":
        mask = int(tensor.mask or 1 << len(dst) - 1)
        return tuple(extent if mask >> d & 1 else 1 for d, extent in enumerate(dst))
    names = {"src": src, "src_a": src, "wei": weights, "src_b": weights, "dst": dst}
    return names.get(base)


def _described(line: OperationLine, base: str, sizes: Descriptor) -> Dims | None:
    """The dims where a problem is a list of keys."""
    if sizes.driver == "rnn":
        return None
    if base in _PER_CHANNEL:
        return (sizes["ic"],)
    if base in ("src", "data"):
        return sizes.src_dims
    if line.kind not in _WEIGHTED:
        window = line.kind in ("pooling", "resampling") and base in ("dst", "ws")
        space = sizes.spatial("o" if window else "i")
        return (sizes["mb"], sizes["ic"], *space)
    outputs = sizes["oc"]
    if base == "bia":
        return (outputs,)
    if line.kind == "inner_product":
        return {"dst": (sizes["mb"], outputs), "wei": (outputs, *sizes.src_dims[1:])}.get(base)
    channels = (outputs // sizes.groups, sizes["ic"] // sizes.groups)
    weights = (*([sizes.groups] if sizes.grouped else []), *channels, *sizes.spatial("k"))
    return {"dst": (sizes["mb"], outputs, *sizes.spatial("o")), "wei": weights}.get(base)


def _place(
    line: OperationLine, base: str, tensor: Tensor, dims: Dims | None
) -> tuple[MemoryDesc | None, Sequence[str]]:
    if dims is None or tensor.format_kind != "blocked":
        return None, ()
    try:
        tag = FormatTag(tensor.tag)
        if tag.ndims != len(dims):
            return None, ()
        if not tensor.strides:
            desc = MemoryDesc(dims, tensor.data_type, tag)
        else:
            strides = [int(stride) for stride in tensor.strides.split("x")]
            desc = MemoryDesc(dims, tensor.data_type, strides, inner_blocks=tag.inner_blocks)
    except (Error, ValueError) as error:
        raise BadValue(f"cannot read the layout of {tensor.name}: {error}") from None
    grouped = line.problem.startswith(("g", "G"))
    return desc, _letters(line.kind, base, len(dims), grouped)


def _letters(kind: str, base: str, ndims: int, grouped: bool) -> Sequence[str]:
    """The letters of the dimensions by their meaning, or a, b, c, ... where they have none."""
    if kind == "matmul" and ndims >= 2:
        ends = {"src": "mk", "src_a": "mk", "wei": "kn", "src_b": "kn"}.get(base, "mn")
        return _PLAIN[: ndims - 2] + ends
    head = ""
    if kind in _CHANNELS:
        weights = "goi" if grouped and kind != "inner_product" else "oi"
        head = {"bia": "o", "wei": weights}.get(base, "nc" if ndims > 1 else "c")
    space = ndims - len(head)
    if not head or space > len(SPATIAL):
        return _PLAIN[:ndims]
    return head + SPATIAL[len(SPATIAL) - space :]


def layout(item: Placed) -> str:
    """The layout in words: its name, the order of the dimensions, what lies beside them."""
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
