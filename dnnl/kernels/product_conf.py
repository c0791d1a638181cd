"""What matmul and inner product share besides the product itself: the problem, what is copied
before and after, and the order of the phases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dnnl.codegen.brgemm import Tile, max_rows
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments, refuse
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.kernels.pointwise import emit_copies, emit_copy, refuse_types
from dnnl.kernels.product import Product, emit_product
from dnnl.kernels.scratchpad import Argument, Copy, Scratchpad
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.tag import FormatTag

LETTERS = "abcdefghijkl"

Walkable = Callable[[MemoryDesc], bool]
Panels = Callable[[MemoryDesc, MemoryDesc], tuple[MemoryDesc, int]]


@dataclass(frozen=True)
class Problem:
    """dst = post_ops(bias + src * weights); ``bias`` may be the zero descriptor."""

    src: MemoryDesc
    weights: MemoryDesc
    bias: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]


@dataclass(frozen=True)
class Conf:
    """A product with every layout decided: the operands as the product reads and writes them, and
    what to copy.

    ``copy_out`` goes after the product, if dst is not computed in place, and then does the
    ``post_ops``. ``scratchpad`` is in bytes.
    """

    src: Argument
    weights: Argument
    dst: Argument
    bias: MemoryDesc
    post_ops: tuple[PostOp, ...]
    tile: Tile
    keep_weights: bool
    copies_in: tuple[Copy, ...]
    copy_out: Copy | None
    scratchpad: int


def plain(desc: MemoryDesc) -> MemoryDesc:
    """The tensor in row-major order."""
    return desc.with_tag(FormatTag(LETTERS[: desc.ndims]))


def resolve(problem: Problem, walkable: Walkable, panels: Panels) -> Problem:
    """Decide the layouts that are ``any``: row-major ones, and ``panels(src, weights)``, with the
    number of vectors in a panel, for the weights."""
    decided: dict[str, Any] = {
        name: plain(desc)
        for name in ("src", "dst", "bias")
        if (desc := getattr(problem, name)).format_kind is FormatKind.any
    }
    problem = replace(problem, **decided)
    if problem.weights.format_kind is FormatKind.any:
        src = problem.src if walkable(problem.src) else plain(problem.src)
        problem = replace(problem, weights=panels(src, problem.weights)[0])
    return problem


def refuse_problem(problem: Problem) -> Refusal | None:
    """Why the product cannot be generated, or None."""
    tensors = [problem.src, problem.weights, problem.dst]
    tensors += [] if problem.bias.is_zero else [problem.bias]
    return refuse_types(*tensors) or refuse(problem.post_ops, problem.dst)


def plan(
    problem: Problem,
    isa: Isa,
    src: Argument,
    weights: Argument,
    *,
    src_walkable: Walkable,
    dst_walkable: Walkable,
    panels: Panels,
) -> Conf:
    """Copy what the product cannot walk. ``src`` and ``weights`` say whose memory they are."""
    scratchpad = Scratchpad()
    dst: Argument = (Arg.DST, problem.dst)
    copy_out: Copy | None = None
    if not src_walkable(problem.src):
        src = scratchpad.copy(src, plain(problem.src))
    wanted, vectors = panels(src[1], problem.weights)
    if problem.weights != wanted:
        weights = scratchpad.copy(weights, wanted)
    if not dst_walkable(problem.dst):
        computed = scratchpad.take(plain(problem.dst))
        copy_out = (computed, dst)
        dst = computed
    return Conf(
        src=src, weights=weights, dst=dst, bias=problem.bias, post_ops=problem.post_ops,
        tile=Tile(max_rows(isa, vectors), vectors), keep_weights=wanted.size > isa.caches.l2 // 2,
        copies_in=tuple(scratchpad.copies), copy_out=copy_out, scratchpad=scratchpad.size,
    )  # fmt: skip


def build(
    name: str,
    conf: Conf,
    isa: Isa,
    product: Callable[[tuple[PostOp, ...], Arguments], Product],
) -> Kernel:
    """The copies in, the product with the post-ops that it does, the copy out."""
    arguments = Arguments()
    module = Module(name, isa)
    phases = emit_copies(module, name, conf.copies_in, arguments)
    problem = product(conf.post_ops if conf.copy_out is None else (), arguments)
    symbol = f"{name}__f32__{conf.tile.rows}x{conf.tile.vectors * isa.lanes}__{isa.name}"
    phases.append(emit_product(module, symbol, problem))
    if conf.copy_out is not None:
        symbol = f"{name}_out__f32__{isa.lanes}x1__{isa.name}"
        phases.append(emit_copy(module, symbol, *conf.copy_out, arguments, conf.post_ops))
    return Kernel(module, tuple(phases), arguments.ids)
