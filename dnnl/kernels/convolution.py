"""Convolution on register tiles, for any layouts.

The compute phase broadcasts single elements of src and reads whole vectors of weights, so src may
lie in any order, weights must have neighbouring output channels side by side, and dst is best
written in vectors of channels. What does not fit is copied to the scratchpad and back by phases
of its own: weights into panels, src and dst into channels-last order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dnnl.codegen.address import block_boundaries
from dnnl.codegen.brgemm import TileShape, choose_vectors, max_rows
from dnnl.codegen.builder import Module
from dnnl.codegen.epilogue import Arguments
from dnnl.codegen.isa import Isa
from dnnl.codegen.kernel import Kernel, Refusal
from dnnl.codegen.multiply import multiply
from dnnl.errors import InvalidArguments
from dnnl.kernels import product_conf
from dnnl.kernels.blocking import Blocking
from dnnl.kernels.conv_compute import Compute, emit_compute
from dnnl.kernels.conv_tiles import Spatial
from dnnl.kernels.pointwise import emit_copies, emit_copy
from dnnl.kernels.scratchpad import Argument, Relayout, Scratchpad
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpBinary, PostOpPrelu
from dnnl.types.tag import FormatTag

_LETTERS = "abcdefghijkl"


@dataclass(frozen=True, kw_only=True)
class Problem(product_conf.Problem):
    """A forward convolution. ``space`` has depth, height and width; a missing one has size 1.

    The layout of src, weights and dst may be ``any``.
    """

    space: tuple[Spatial, Spatial, Spatial]

    @property
    def grouped(self) -> bool:
        """Whether the weights have a dimension of groups."""
        return self.weights.ndims > self.src.ndims

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.weights.dims[0] if self.grouped else 1

    @property
    def step(self) -> tuple[int, int]:
        """How many pixels apart the neighbouring rows of a tile are, in src and in dst."""
        return self.space[2].stride, 1


@dataclass(frozen=True)
class Conf:
    """A convolution with every layout decided: what to copy, what to compute.

    ``copies_in`` go before it. ``copy_out`` goes after it, if dst is not computed in place, and
    then does the ``post_ops`` too.
    """

    compute: Compute
    copies_in: tuple[Relayout, ...]
    copy_out: Relayout | None
    post_ops: tuple[PostOp, ...]
    scratchpad: int


def resolve(problem: Problem, isa: Isa) -> Problem:
    """Decide the layouts that are ``any``.

    Activations get their channels in blocks of a vector, so that a tile reads neighbouring cache
    lines; with too few channels for that they stay plain, or channels-last if groups are cut.
    """
    problem = resolve_activations(problem, isa)
    if problem.weights.format_kind is FormatKind.any:
        problem = replace(problem, weights=_panels(problem, isa))
    return problem


def resolve_activations(problem: Problem, isa: Isa) -> Problem:
    """Decide src and dst only."""
    src = _activation(problem.src, problem.groups, isa)
    dst = _activation(problem.dst, problem.groups, isa)
    return replace(problem, src=src, dst=dst)


def _activation(desc: MemoryDesc, groups: int, isa: Isa) -> MemoryDesc:
    if desc.format_kind is not FormatKind.any:
        return desc
    channels = desc.dims[1]
    spatial = _LETTERS[2 : desc.ndims]
    if groups > 1 and channels // groups % isa.lanes:
        return desc.with_tag(f"a{spatial}b")
    if channels < isa.lanes or isa.lanes == 1:
        return desc.with_tag(f"ab{spatial}")
    return desc.with_tag(f"aB{spatial}{isa.lanes}b")


def _channel_block(problem: Problem) -> int:
    """How many channels of src are side by side before the next block, 0 if it has no blocks."""
    sizes = block_boundaries(problem.src, 1)
    return sizes[-1] if sizes else 0


def _panels(problem: Problem, isa: Isa) -> MemoryDesc:
    """The weights as the compute phase reads them: panels of a tile's output channels, each with
    all that is summed in one stream, ordered as src is walked."""
    first = 1 if problem.grouped else 0
    outputs = problem.weights.dims[first]
    width = _vectors(problem, outputs, isa) * isa.lanes
    o, i = _LETTERS[first], _LETTERS[first + 1]
    taps = _LETTERS[first + 2 : problem.weights.ndims]
    group = "a" if problem.grouped else ""
    block = _channel_block(problem)
    if block:
        tag = f"{group}{o.upper()}{i.upper()}{taps}{block}{i}{width}{o}"
    else:
        tag = f"{group}{o.upper()}{taps}{i}{width}{o}"
    return MemoryDesc(problem.weights.dims, problem.weights.data_type, FormatTag(tag))


def _vectors(problem: Problem, outputs: int, isa: Isa) -> int:
    """How many vectors wide the tile is; its rows are neighbouring pixels."""
    step = problem.src.strides[-1] * problem.src.data_type.size
    return choose_vectors(isa, outputs, step * problem.step[0])


def _walkable(problem: Problem, desc: MemoryDesc, channels: int) -> bool:
    """Whether all offsets of an activation are affine in channel blocks, which belong to it as a
    whole, and pixels."""
    sizes = block_boundaries(desc, 1)
    if len(sizes) != len(desc.inner_blocks) or len(sizes) > 1:
        return False
    if sizes and desc.padded_dims[1] % sizes[0]:
        return False
    return problem.groups == 1 or not sizes or channels % sizes[0] == 0


def _in_vectors(problem: Problem) -> bool:
    """Whether tiles are stored in vectors: of channels, or turned, of pixels side by side."""
    dst = problem.dst
    return problem.step[1] == 1 or bool(dst.inner_blocks) or dst.strides[1] == 1


def _covered(problem: Problem, outputs: int, isa: Isa) -> bool:
    """Whether the panels reach over all of dst's padding, which is to become zero."""
    dst = problem.dst
    if any(dst.dims[dim] != dst.padded_dims[dim] for dim in range(dst.ndims) if dim != 1):
        return False
    width = _vectors(problem, outputs, isa) * isa.lanes
    return problem.groups > 1 or dst.padded_dims[1] <= -(-outputs // width) * width


def flatten(problem: Problem) -> Problem:
    """A 1x1 convolution as one along a single line of pixels, where the layouts allow it."""
    plain = all((s.kernel, s.stride, s.padding, s.src) == (1, 1, 0, s.dst) for s in problem.space)
    in_line = all(_fits_line(problem.dst, entry) for entry in problem.post_ops)
    if not (plain and in_line) or problem.src.ndims == 3:
        return problem
    try:
        src, dst = _in_line(problem.src), _in_line(problem.dst)
        post_ops = tuple(
            entry.mapped(_in_line) if isinstance(entry, PostOpBinary) else entry
            for entry in problem.post_ops
        )
        weights = _in_line(problem.weights, 3 if problem.grouped else 2)
    except InvalidArguments:
        return problem
    line = Spatial(src.dims[2], dst.dims[2], 1, 1, 0, 1)
    one = Spatial(1, 1, 1, 1, 0, 1)
    return replace(
        problem, src=src, dst=dst, weights=weights, post_ops=post_ops, space=(one, one, line)
    )


def _fits_line(dst: MemoryDesc, entry: PostOp) -> bool:
    """Whether the post-op treats all pixels alike or each by itself, not rows or columns."""
    if isinstance(entry, PostOpPrelu):
        return entry.mask <= 3
    if isinstance(entry, PostOpBinary):
        spatial = entry.src1_desc.dims[2:]
        return spatial == dst.dims[2:] or set(spatial) == {1}
    return True


def _in_line(desc: MemoryDesc, keep: int = 2) -> MemoryDesc:
    pixels = 1
    for extent in desc.dims[keep:]:
        pixels *= extent
    return desc.reshape((*desc.dims[:keep], pixels))


def configure(problem: Problem, isa: Isa) -> Conf | Refusal:
    """Plan a convolution whose layouts are all decided (see :func:`resolve`)."""
    refusal = product_conf.refuse_problem(problem, integers=False)
    if refusal is not None:
        return refusal
    problem = flatten(problem)
    scratchpad = Scratchpad()
    copy_out: Relayout | None = None
    post_ops = problem.post_ops
    first = 1 if problem.grouped else 0
    outputs, channels = problem.weights.dims[first : first + 2]
    src: Argument = (Arg.SRC, problem.src)
    dst: Argument = (Arg.DST, problem.dst)
    weights: Argument = (Arg.WEIGHTS, problem.weights)
    way = multiply(isa, problem.src.data_type, problem.weights.data_type, grouped=False)
    assert way is not None, "refused before"
    walkable = _walkable(problem, problem.src, channels)
    if not walkable or problem.src.data_type is not way.a:
        same = walkable and problem.src.tag is not None
        wanted = problem.src if same else _channels_last(problem.src)
        src = scratchpad.copy(src, wanted.with_data_type(way.a))
        problem = replace(problem, src=src[1])
    direct = _walkable(problem, problem.dst, outputs) and _covered(problem, outputs, isa)
    if not (direct and _in_vectors(problem)):
        computed = scratchpad.take(_channels_last(problem.dst).with_data_type(DataType.f32))
        copy_out = (computed, dst)
        dst, post_ops = computed, ()
    panels = _panels(problem, isa)
    if problem.weights != panels:
        weights = scratchpad.copy(weights, panels)
    compute = Compute(
        src=src, weights=weights, dst=dst, bias=problem.bias, post_ops=post_ops,
        groups=problem.groups, channels=channels, outputs=outputs,
        channel_block=_channel_block(problem), space=problem.space,
        multiply=way, blocking=_blocking(problem, panels, outputs, isa),
    )  # fmt: skip
    return Conf(compute, tuple(scratchpad.copies), copy_out, problem.post_ops, scratchpad.size)


def _channels_last(desc: MemoryDesc) -> MemoryDesc:
    return MemoryDesc(desc.dims, desc.data_type, FormatTag(f"a{_LETTERS[2 : desc.ndims]}b"))


def _blocking(problem: Problem, panels: MemoryDesc, outputs: int, isa: Isa) -> Blocking:
    """Tiles of the panels' width; one panel stays in the cache for all pixels where all of them
    together would not."""
    vectors = _vectors(problem, outputs, isa)
    tile = TileShape(max_rows(isa, vectors), vectors)
    return Blocking(tile, panels=1 if panels.size > isa.caches.l2 // 2 else 0)


def build(conf: Conf, isa: Isa) -> Kernel:
    """The copies in, the compute phase, the copy out."""
    return build_parts("convolution", conf, (conf.compute,), isa)


def build_parts(name: str, conf: Conf, parts: Sequence[Compute], isa: Isa) -> Kernel:
    """The copies in, a phase for each part of the computation, the copy out."""
    arguments = Arguments()
    module = Module(name, isa)
    phases = emit_copies(module, name, conf.copies_in, arguments)
    compute = conf.compute
    shape = compute.blocking.tile
    tile = f"{shape.rows}x{shape.vectors * isa.lanes}"
    tensors = compute.src, compute.weights, compute.dst
    types = "_".join(dict.fromkeys(str(part[1].data_type) for part in tensors))
    for number, part in enumerate(parts):
        symbol = f"{name}{number or ''}__{types}__{tile}__{isa.name}"
        phases.append(emit_compute(module, symbol, part, arguments))
    if conf.copy_out is not None:
        out = conf.copy_out[1][1].data_type
        symbol = f"{name}_out__{out}__{isa.lanes}x1__{isa.name}"
        phases.append(emit_copy(module, symbol, *conf.copy_out, arguments, conf.post_ops))
    return Kernel(module, tuple(phases), arguments.ids)
