"""What a primitive description has decided and what may be expected of it, to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dnnl.codegen.ir.kernel import Recipe
from dnnl.codegen.isa import Isa
from dnnl.codegen.product.multiply import as_f32
from dnnl.codegen.product.pairs import Pairs
from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.kernels.product.base.blocking import Blocking
from dnnl.kernels.product.plan.summary import Inspectable, PlanSummary
from dnnl.primitives.amounts import duration, scaled, size
from dnnl.primitives.desc import Desc
from dnnl.primitives.implementation import Plan
from dnnl.primitives.limits import Limits, limits
from dnnl.runtime.engine import Engine
from dnnl.types.arg import Arg, name_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpPrelu, PostOpSum

_ENGINE = "cpu"


@dataclass(frozen=True)
class Packing:
    """A copy that an execution makes: of what, from which layout to which, ``nbytes`` of it in the
    scratchpad."""

    name: str
    src: str
    dst: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.name} is copied from {self.src} to {self.dst}, {size(self.nbytes)}"


@dataclass(frozen=True)
class Step:
    """A phase of the kernel: its symbol, the register tile (rows by columns), and the independent
    work items that threads share."""

    symbol: str
    tile: str
    items: int

    def __str__(self) -> str:
        return f"{self.symbol}: {self.items} work item{'s' if self.items != 1 else ''}"


@dataclass(frozen=True)
class Info:
    """A primitive description from inside.

    ``tensors`` are pairs of a name and an oneDNN token with ``tensor_bytes`` together, operands of
    attributes among them. ``tile`` is that of the phase that computes dst, rows by columns,
    ``factors`` how its factors are multiplied; ``block`` is empty where a loop nest decides.
    ``operations`` counts multiplications and additions, 0 where they are not what takes time.
    With ``packs`` threads pack panels of weights just before they multiply them; ``packing`` are
    the copies of whole tensors. ``limits`` are None on engines other than the processor.
    ``seconds`` is what an execution took, once measured (`with_time`).
    """

    implementation: str
    tensors: tuple[tuple[str, str], ...]
    tile: str
    block: str
    factors: str
    packing: tuple[Packing, ...]
    scratchpad: int
    steps: tuple[Step, ...]
    tensor_bytes: int
    operations: int
    limits: Limits | None
    packs: bool = False
    seconds: float | None = None

    @property
    def bytes_moved(self) -> int:
        """Each tensor once, and each copy written and read again."""
        return self.tensor_bytes + 2 * sum(copy.nbytes for copy in self.packing)

    @property
    def intensity(self) -> float:
        """Operations for a byte that is moved."""
        return self.operations / self.bytes_moved if self.bytes_moved else 0.0

    @property
    def compute_seconds(self) -> float:
        """What the arithmetic takes at least; 0 where the operations are unknown."""
        return self.operations / self.limits.operations if self.limits else 0.0

    @property
    def memory_seconds(self) -> float:
        """What moving the bytes takes at least."""
        return self.bytes_moved / self.limits.bandwidth if self.limits else 0.0

    @property
    def bound(self) -> str:
        """``compute`` or ``memory``: what takes longer; empty without limits."""
        if self.limits is None:
            return ""
        return "compute" if self.compute_seconds > self.memory_seconds else "memory"

    @property
    def predicted_seconds(self) -> float:
        """The least time that the limits allow."""
        return max(self.compute_seconds, self.memory_seconds)

    @property
    def reached(self) -> float | None:
        """The share of the limit that was reached; None if nothing was measured."""
        if not self.seconds or self.limits is None:
            return None
        return self.predicted_seconds / self.seconds

    def with_time(self, seconds: float) -> Info:
        """The same with the measured time of an execution."""
        if not seconds > 0:
            raise InvalidArguments("seconds", seconds, "a time is above 0")
        return replace(self, seconds=seconds)

    def rows(self) -> Iterator[tuple[str, str]]:
        """A label and a text for each thing there is to tell; a label is empty that goes on."""
        yield "kernel", f"tile {self.tile}; {self.factors}" if self.factors else f"tile {self.tile}"
        if self.block:
            yield "block", self.block
        for number, step in enumerate(self.steps):
            yield "" if number else "phases", str(step)
        yield from self._packing()
        moved = f"{size(self.bytes_moved)} moved, each tensor once"
        if self.packing:
            copied = self.bytes_moved - self.tensor_bytes
            moved += f" ({size(self.tensor_bytes)}), copies written and read ({size(copied)})"
        yield "bytes", moved
        if self.operations:
            rate = f"{self.intensity:.3g} operations per byte"
            yield "arithmetic", f"{scaled(self.operations, 'operations')}, {rate}"
        yield from self._limits()

    def _packing(self) -> Iterator[tuple[str, str]]:
        nbytes = self.scratchpad
        scratchpad = f"scratchpad of {size(nbytes)}" if nbytes else "no scratchpad"
        if self.packs:
            yield "packing", "threads pack panels of weights just before they multiply them"
        elif not self.packing:
            yield "packing", f"nothing is copied, {scratchpad}"
        for number, copy in enumerate(self.packing):
            yield "" if number or self.packs else "packing", str(copy)
        if self.packing or self.packs:
            yield "", scratchpad

    def _limits(self) -> Iterator[tuple[str, str]]:
        most = self.limits
        if most is None:
            yield "limit", "not predicted: the engine's peaks are not measured"
            if self.seconds is not None:
                yield "measured", duration(self.seconds)
            return
        threads = f"{most.num_threads} thread{'s' if most.num_threads > 1 else ''}"
        peak = f"{scaled(most.operations, 'op/s')} of {most.factors}"
        read = f"reads at {scaled(most.bandwidth, 'B/s')} where {size(most.reach)} are read"
        yield "machine", f"{peak}, {read}, measured on {threads}"
        arithmetic = f"arithmetic {duration(self.compute_seconds)}, " if self.operations else ""
        times = f"{arithmetic}bytes {duration(self.memory_seconds)}"
        yield "limit", f"{self.bound}: {duration(self.predicted_seconds)} at least ({times})"
        if self.reached is not None and self.seconds is not None:
            yield "measured", f"{duration(self.seconds)}, {self.reached:.0%} of the limit"

    def __str__(self) -> str:
        named = [("here", self.implementation), *self.tensors, *self.rows()]
        return "\n".join(f"{label:<10}  {text}" for label, text in named)


def look_inside(
    name: str,
    desc: Desc,
    plan: Plan,
    attr: PrimitiveAttr,
    engine: Engine,
    arg_desc: Callable[[int], MemoryDesc],
    num_threads: int,
) -> Info:
    """What an implementation of that ``name`` has planned for ``desc``; the limits are measured
    where this process has not yet done so."""
    recipe = plan.recipe
    if desc.has_runtime_values:
        rule = "sizes that only an execution knows have no bytes and no times"
        raise Unimplemented(
            rule, ["with_sizes({argument: descriptor}) of a description gives them"]
        )
    summary = recipe.conf.summary if isinstance(recipe.conf, Inspectable) else None
    tensors = {label: arg_desc(argument) for label, argument in _arguments(desc, attr)}
    nbytes = sum(tensor.size for tensor in tensors.values())
    if any(isinstance(entry, PostOpSum) for entry in attr.post_ops):
        nbytes += desc.outputs[0].desc.size
    steps = () if desc.writes_nothing else _steps(recipe)
    names = {tensor.argument: tensor.name for tensor in desc.tensors}
    info = Info(
        implementation=name,
        tensors=tuple((label, str(tensor)) for label, tensor in tensors.items()),
        tile=_tile(steps, summary, recipe.isa),
        block=_blocks(summary) if summary else "",
        factors=_factors(summary) if summary else "",
        packing=tuple(_packings(names, summary)) if summary else (),
        scratchpad=plan.scratchpad,
        steps=steps,
        tensor_bytes=nbytes,
        operations=(summary and summary.operations) or desc.operation.flops(desc),
        limits=None,
        packs=summary is not None and summary.packed_from is not None,
    )
    if engine.kind != _ENGINE:
        return info
    how = summary.multiply if summary else as_f32()
    return replace(info, limits=limits(engine, recipe.isa, how, info.bytes_moved, num_threads))


def _arguments(desc: Desc, attr: PrimitiveAttr) -> Iterator[tuple[str, int]]:
    """All that an execution reads and writes, by name."""
    seen: Counter[str] = Counter()
    for tensor in desc.tensors:
        yield f"{tensor.name}{seen[tensor.name] or ''}", tensor.argument
        seen[tensor.name] += 1
    for specs, flag in ((attr.scales, Arg.SCALES), (attr.zero_points, Arg.ZERO_POINTS)):
        yield from ((name_of(flag | argument), flag | argument) for argument in specs)
    for number, entry in enumerate(attr.post_ops):
        operands = [operand for operand, _ in entry.operands]
        if isinstance(entry, PostOpPrelu):
            operands.append(Arg.WEIGHTS)
        found = (Arg.post_op(number) | operand for operand in operands)
        yield from ((name_of(argument), argument) for argument in found)
    if attr.dropout is not None and not attr.dropout.mask_desc.is_zero:
        yield "mask", Arg.DROPOUT_MASK


def _packings(names: Mapping[int, str], summary: PlanSummary) -> Iterator[Packing]:
    last = () if summary.copy_out is None else (summary.copy_out,)
    for (src, given), (dst, made) in (*summary.copies_in, *last):
        name = names.get(src) or names.get(dst) or "what is packed already"
        written = given if dst in names else made
        size = written.size - written.offset0 * written.data_type.bits // 8
        yield Packing(name, _layout(given), _layout(made), size)


def _layout(desc: MemoryDesc) -> str:
    return f"{desc.data_type} {desc.tag or 'with strides'}"


@lru_cache(maxsize=64)
def _steps(recipe: Recipe) -> tuple[Step, ...]:
    """The phases of a kernel; `docs/codegen.md` has the grammar of symbols."""
    found = []
    for phase in recipe.kernel().phases:
        parts = phase.symbol.split("__")
        found.append(Step(phase.symbol, parts[2] if len(parts) > 2 else "", phase.count))
    return tuple(found)


def _tile(steps: tuple[Step, ...], summary: PlanSummary | None, isa: Isa) -> str:
    """The tile of the products; elsewhere that of the last phase."""
    if summary is not None and summary.blocking is not None:
        tile = summary.blocking.tile
        return f"{tile.rows}x{tile.vectors * isa.lanes}"
    return steps[-1].tile if steps else "0x0"


def _factors(summary: PlanSummary) -> str:
    """How two factors are multiplied."""
    how = summary.multiply
    by = (how.tiles or how.dot).instruction.removeprefix("llvm.x86.").removeprefix(
        "llvm."
    ) or "plain products"
    group = f", {how.group} at a time" if how.group > 1 else ""
    widened = ""
    if how.on_registers is not how:
        widened = f", {how.b} converted to {how.on_registers.b} in registers"
    elif how.parts > 1 and how.tiles is None:
        widened = f", up-converted to {how.parts} registers"
    if how.up_converted:
        widened += ", src before the product"
    if isinstance(how, Pairs):
        widened += ", sums of two in 16 bits"
    if summary.pairs:
        widened += "; panels of small weights by sums of two in 16 bits"
    if summary.packed_from is not None:
        source = "" if summary.packed_from is how.b else f" from {summary.packed_from}"
        widened += f"; threads pack panels of {how.b}{source}"
    return f"{how.a} by {how.b} to {how.dot.accumulator} by {by}{group}{widened}"


def _blocks(summary: PlanSummary) -> str:
    """The cache blocking as a sentence."""
    blocking = summary.blocking
    if blocking is None:
        return summary.cut
    block = _panels(blocking)
    return f"{block}; {summary.cut}" if summary.cut else block


def _panels(blocking: Blocking) -> str:
    if not blocking.panels:
        return "all panels of weights stay in the second-level cache, each tile meets all of them"
    many = "1 panel of weights meets" if blocking.panels == 1 else f"{blocking.panels} panels meet"
    rows = f"blocks of {blocking.places} rows" if blocking.places else "all rows before the next"
    steps = f"; of each sum {blocking.steps} steps at a time" if blocking.steps else ""
    return f"{many} {rows}{steps}"
