"""Descriptions in which symbols stand for the sizes that only an execution knows.

Tensors of an operation share sizes: what `Role.letters` calls the same, and has the same number, is
one symbol. Strides that follow from sizes are expressions of these. So a plan sees what it would
see of known sizes, that two axes are contiguous, or that a loop ends where a tensor does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from string import ascii_uppercase
from types import MappingProxyType

from dnnl.primitives.desc import Desc
from dnnl.primitives.sizes import fields_of
from dnnl.types.arg import GRADIENT, Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.kinds import RUNTIME_DIM, FormatKind
from dnnl.types.layout import Layout, order_of, round_up
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp
from dnnl.types.runtime_dim import RuntimeDim, joined
from dnnl.types.size import larger, surely_equal, text, typical
from dnnl.types.symbols import LEAST, Symbols

# Numbers that heuristics decide by where nothing is known: no two alike, and most of them multiples
# of nothing. Images of floats stay in caches, so that the kernel which a description starts with
# serves small ones.
_TYPICAL = {
    "n": 7, "c": 67, "i": 67, "o": 97, "d": 11, "h": 53, "w": 59, "m": 211, "k": 260,
    "g": 2, "kd": 3, "kh": 3, "kw": 3, "columns": 193,
}  # fmt: skip
_OTHERS = (61, 131, 101, 103, 37, 41, 43, 31, 29, 23, 19, 17)
_IMAGES = (7, 61, 51, 53)


@dataclass(frozen=True, eq=False)
class Opened:
    """A description of symbols. ``sources`` says of each symbol which number of an execution it is,
    and ``numbers`` what all numbers of its tensors must be (`numbers_of`), as Python expressions of
    the symbols s0, s1, ... and of the numbers ``n`` themselves where anything will do. ``ranges``
    are the conditions of symbols."""

    symbols: Symbols
    desc: Desc
    attr: PrimitiveAttr
    sources: tuple[str, ...]
    numbers: tuple[str, ...]
    ranges: tuple[str, ...]

    @property
    def settled(self) -> tuple[str, ...]:
        """The sources of the symbols that guards allow one number."""
        return tuple(self.sources[number] for number in self.symbols.settled)


def numbers_of(descs: Sequence[MemoryDesc]) -> tuple[int, ...]:
    """All numbers of the layouts of tensors, one after the other."""
    return tuple(number for desc in descs for number in desc.layout_numbers)


def opened(
    desc: Desc,
    attr: PrimitiveAttr,
    patterns: Mapping[int, MemoryDesc],
    given: Mapping[int, MemoryDesc],
    *,
    fixed: bool = False,
    constants: Collection[str] = (),
) -> Opened:
    """The description ``desc`` of patterns with a symbol for each size that it leaves open, or
    ``fixed`` to the given sizes. ``given`` are the tensors of an execution: their numbers are the
    typical ones. Sizes of which they have 0, or 1 unless `Desc.single` has them, are constants, and
    so are those with ``constants`` as sources."""
    making = _Making(desc, attr, patterns, constants)
    made = {
        arg: making.tensor(arg, given[arg] if fixed else pattern, given[arg])
        for arg, pattern in patterns.items()
    }
    post_ops = tuple(with_operands(n, entry, made) for n, entry in enumerate(attr.post_ops))
    attr = attr.with_layouts(post_ops, attr.dropout)
    sized = desc.laid_out(**fields_of(desc, made))
    return Opened(
        making.symbols,
        sized,
        attr,
        tuple(making.sources),
        tuple(making.numbers),
        tuple(making.ranges),
    )


def with_operands(number: int, entry: PostOp, made: Mapping[int, MemoryDesc]) -> PostOp:
    """Post-op ``number`` with the descriptors of its operands that are ``made``, by argument."""
    ids = (Arg.post_op(number) | argument for argument, _ in entry.operands)
    return entry.mapped(lambda desc: made.get(next(ids), desc))


class _Making:
    """The symbols of one description while its tensors are opened."""

    def __init__(
        self,
        desc: Desc,
        attr: PrimitiveAttr,
        patterns: Mapping[int, MemoryDesc],
        constants: Collection[str],
    ) -> None:
        self.symbols, self._constants = Symbols(), constants
        self.sources: list[str] = []
        self.numbers: list[str] = []
        self.ranges: list[str] = []
        self._desc, self._names = desc, dimension_names(desc, patterns)
        self._promises = _promises(desc, attr, self._names, patterns)
        self._dims: dict[int, Sequence[int]] = {}
        self._rows = _rows(self._names, patterns)
        self._sizes: dict[tuple[str, int], int] = {}

    def tensor(self, argument: int, pattern: MemoryDesc, given: MemoryDesc) -> MemoryDesc:
        """The descriptor of an argument, each of whose numbers is checked or is a symbol."""
        self._begin, ndims = len(self.numbers), given.ndims
        self._broadcast = argument >= Arg.post_op(0)
        if not pattern.has_runtime_values:
            self.numbers += map(str, pattern.layout_numbers)
            strided = pattern.format_kind is FormatKind.blocked
            for dim, size in enumerate(pattern.padded_dims if strided else ()):
                if size == 1:  # its stride is used by nobody, and equal descriptors differ in it
                    place = self._begin + 2 * ndims + dim
                    self.numbers[place] = f"n[{place}]"
            self._dims[argument] = given.dims
            return given
        for dim, size in enumerate(pattern.dims):
            if isinstance(size, RuntimeDim):
                low, high, multiple = size.promise
                number = f"n[{self._begin + dim}]"
                self.ranges.append(f"{low}<={number}<={high}")
                if multiple > 1:
                    self.ranges.append(f"{number}%{multiple}==0")
        places = range(self._begin, self._begin + 3 * ndims + 1)
        self.numbers += (f"n[{place}]" for place in places)
        dims = [
            self._dim(argument, dim, own, pattern.dims[dim]) for dim, own in enumerate(given.dims)
        ]
        self._dims[argument] = dims
        padded = self._padded(dims, pattern, given)
        strides = self._strides(padded, pattern, given)
        offset = self._number(3 * ndims, given.offset0, pattern.offset0)
        layout = Layout(tuple(dims), padded, strides, given.inner_blocks, offset)
        return MemoryDesc.of_layout(given, layout)

    def _dim(self, argument: int, dim: int, given: int, wanted: int) -> int:
        name = self._names[argument][dim]
        derived = self._desc.derived_size(argument, dim, self._dims)
        if derived is None or not self._fits(dim, derived, given):
            return self._number(dim, given, wanted, name)
        self._sizes[name, given] = derived
        return derived

    def _padded(
        self, dims: Sequence[int], pattern: MemoryDesc, given: MemoryDesc
    ) -> tuple[int, ...]:
        whole = round_up(dims, given.blocks) if given.inner_blocks else tuple(dims)
        made = []
        for dim, (size, own) in enumerate(zip(whole, given.padded_dims, strict=True)):
            place, wanted = given.ndims + dim, pattern.padded_dims[dim]
            if self._fits(place, size, own):
                made.append(size)
            else:  # the larger one, so that the size is known to be within its padding
                made.append(larger(dims[dim], self._number(place, own, wanted)))
        return tuple(made)

    def _strides(
        self, padded: Sequence[int], pattern: MemoryDesc, given: MemoryDesc
    ) -> tuple[int, ...]:
        """The strides from the innermost dimension out. One that continues those inside of it is
        an expression; any other is a symbol, unless the pattern has a number."""
        order = order_of(given._layout) if pattern.tag is None else pattern.tag.order
        dense = prod(given.blocks)
        made = [0] * given.ndims
        for dim in reversed(order):
            place, own = 2 * given.ndims + dim, given.strides[dim]
            if surely_equal(padded[dim] // given.blocks[dim], 1):
                made[dim] = dense  # used by nobody
            elif self._fits(place, dense, own):
                made[dim] = dense
            else:
                made[dim] = self._number(place, own, pattern.strides[dim])
            if own:
                dense = made[dim] * (padded[dim] // given.blocks[dim] or 1)
        return tuple(made)

    def _fits(self, place: int, size: int, given: int) -> bool:
        """Whether a number is that of an expression, which executions then must have too."""
        if typical(size) != given:
            return False
        self.numbers[self._begin + place] = text(size)
        return True

    def _number(self, place: int, given: int, wanted: int, name: str = "") -> int:
        """The symbol of a number, that of its name if there is one. What a pattern knows is a
        constant, and so are 0, 1 and what a very short row has."""
        where = self._begin + place
        known = self._sizes.get((name, given)) if name else None
        least = self._desc.shortest_row if name in self._rows else LEAST
        if name in self._desc.single and not (self._broadcast and known is None):
            least = 1  # what is 1 for an operand of a post-op alone is broadcast
        lowest = 1 if name and least <= LEAST else least  # a kernel made for more also serves 1
        promise = self._promises.get(name, wanted)
        promised: tuple[int, float, int] | None = None
        if isinstance(promise, RuntimeDim) and promise.allows(given):
            promised = promise.promise
        low, high, multiple = promised or (lowest, inf, 1)
        source = f"n[{where}]//{multiple}" if multiple > 1 else f"n[{where}]"
        if wanted != RUNTIME_DIM or given < least:
            known = given
        elif known is None and source in self._constants:
            known = self._sizes[name, given] = given
        if known is not None:
            self.numbers[where] = text(known)
            return known
        low = max(low, lowest)
        size = self.symbols.size(given, low, high, multiple)
        self.ranges.append(f"{low}<=n[{where}]<={high}" if promised else f"n[{where}]>={low}")
        self.sources.append(source)
        self.numbers[where] = text(size)
        if name:
            self._sizes[name, given] = size
        return size


def _rows(
    names: Mapping[int, Sequence[str]], patterns: Mapping[int, MemoryDesc]
) -> Collection[str]:
    """The names of the sizes that are the lengths of contiguous rows."""
    return {
        name
        for argument, pattern in patterns.items()
        if pattern.format_kind is FormatKind.blocked and not pattern.inner_blocks
        for name, stride in zip(names[argument], pattern.strides, strict=True)
        if stride == 1
    }


def _promises(
    desc: Desc,
    attr: PrimitiveAttr,
    names: Mapping[int, Sequence[str]],
    patterns: Mapping[int, MemoryDesc],
) -> dict[str, int]:
    """What is promised of sizes, by name."""
    made: dict[str, int] = {}
    for argument, pattern in patterns.items():
        for dim, (name, size) in enumerate(zip(names[argument], pattern.dims, strict=True)):
            if size == RUNTIME_DIM:
                known = joined(made.get(name, RUNTIME_DIM), desc.size_promise(argument, dim))
                made[name] = joined(known, size)
    for argument, spec in (*attr.scales.items(), *attr.zero_points.items()):
        own = names.get(argument, ())  # groups of more dimensions are refused later
        for name, group in zip(own, spec.group_sizes(len(own)), strict=False):
            if group > 1 and name in made:
                made[name] = joined(made[name], RuntimeDim(multiple=group))
    return made


def dimension_names(desc: Desc, patterns: Mapping[int, MemoryDesc]) -> dict[int, tuple[str, ...]]:
    """The names of the dimensions of all tensors, by argument: what has one name may be one
    size."""
    weights = next((r for r in desc.operation.roles if r.argument == Arg.WEIGHTS), None)
    channels = weights is not None and "oi" in weights.letters
    grouped = channels and _is_grouped(patterns)
    names: dict[int, tuple[str, ...]] = {}
    for argument, pattern in patterns.items():
        if argument >= Arg.post_op(0):
            names[argument] = names[desc.outputs[0].argument]
            continue
        role = next((r for r in desc.operation.roles if r.covers(argument)), None)
        if role is None:  # the second convolution of a chain
            names[argument] = tuple(f"{argument}{chr(97 + dim)}" for dim in range(pattern.ndims))
            continue
        letters = role.letters.replace("[g]", "g" if grouped else "")
        own = list(dimension_letters(letters, pattern.ndims))
        if role.letters.startswith("[g]"):  # taps of a kernel
            own = [f"k{letter}" if letter in "dhw" else letter for letter in own]
        if channels and argument % GRADIENT in (Arg.SRC, Arg.DST):
            letter = "i" if argument % GRADIENT == Arg.SRC else "o"
            own[1] = f"g{letter}" if grouped else letter
        named = (desc.size_name(argument, dim, letter) for dim, letter in enumerate(own))
        names[argument] = tuple(named)
    return names


def _is_grouped(patterns: Mapping[int, MemoryDesc]) -> bool:
    """Whether weights have a dimension more than what they are applied to."""
    ndims = {argument % GRADIENT: desc.ndims for argument, desc in patterns.items()}
    return ndims[Arg.WEIGHTS] > max(ndims.get(Arg.SRC, 0), ndims.get(Arg.DST, 0))


def dimension_letters(letters: str, ndims: int) -> Iterator[str]:
    """The letters of the dimensions of a tensor (`Role.letters`), A, B, ... where they have no
    meaning."""
    known = letters.replace("*", "")
    missing = ndims - len(known)
    if letters.startswith("*"):
        yield from ascii_uppercase[:missing]
        yield from known
    else:
        yield from known
        yield from "dhw"[3 - missing :]


def typical_tensors(
    desc: Desc,
    attr: PrimitiveAttr,
    patterns: Mapping[int, MemoryDesc],
    given: Mapping[str, int] = MappingProxyType({}),
) -> dict[int, MemoryDesc]:
    """Tensors of typical sizes for a description with open sizes; ``given`` has sizes by name that
    override these."""
    names = dimension_names(desc, patterns)
    dims: dict[int, list[int]] = {}
    promises = _promises(desc, attr, names, patterns)

    def typical_size(argument: int, dim: int) -> int:
        name = names[argument][dim]
        derived = desc.derived_size(argument, dim, dims)
        ndims = max(len(own) for own in names.values() if name in own)
        return _typical(name, ndims, promises[name], given) if derived is None else derived

    for argument, pattern in patterns.items():
        dims[argument] = [
            typical_size(argument, dim) if size == RUNTIME_DIM else size
            for dim, size in enumerate(pattern.dims)
        ]
    desc.complete_typical(dims)
    return {arg: laid_out(patterns[arg], own) for arg, own in dims.items()}


def _typical(name: str, ndims: int, promise: int, given: Mapping[str, int]) -> int:
    others = _IMAGES if ndims == len(_IMAGES) else _OTHERS
    size = _TYPICAL.get(name, others[ascii_uppercase.index(name[-1].upper()) % len(others)])
    size = given.get(name, size)
    return promise.near(size) if isinstance(promise, RuntimeDim) else size


def laid_out(pattern: MemoryDesc, dims: Sequence[int]) -> MemoryDesc:
    """A tensor of ``dims`` that matches a pattern, without gaps where strides are open."""
    if not pattern.has_runtime_values:
        return pattern
    blocks = pattern.blocks
    whole = round_up(dims, blocks) if pattern.inner_blocks else dims
    padded = tuple(
        own if size == RUNTIME_DIM else size
        for own, size in zip(whole, pattern.padded_dims, strict=True)
    )
    order: Sequence[int] = range(len(dims)) if pattern.tag is None else pattern.tag.order
    known = {dim: s for dim, s in enumerate(pattern.strides) if s != RUNTIME_DIM}
    if pattern.tag is None:  # known strides are those of inner dimensions
        order = sorted(order, key=lambda dim: (dim in known, -known.get(dim, 0)))
    strides, stride = [0] * len(dims), prod(blocks)
    for dim in reversed(order):
        strides[dim] = known.get(dim, stride)
        extent = strides[dim] * (padded[dim] // blocks[dim] or 1)
        stride = larger(stride, extent) if dim in known else extent
    offset = 0 if pattern.offset0 == RUNTIME_DIM else pattern.offset0
    layout = Layout(tuple(dims), padded, tuple(strides), pattern.inner_blocks, offset)
    return MemoryDesc.of_layout(pattern, layout)
