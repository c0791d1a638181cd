"""A framework's tensor: a memory, and the framework's axis that each axis of the memory is."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod

import numpy as np
import numpy.typing as npt

from dnnl.errors import InvalidArguments
from dnnl.onednn import Value
from dnnl.runtime import reorders
from dnnl.runtime.engine import Engine, checked_engine, first_cpu
from dnnl.runtime.memory import Memory
from dnnl.runtime.storage import allocating
from dnnl.runtime.wrap import ArrayLike, array_of
from dnnl.types.dtype import DataType
from dnnl.types.kinds import coerce
from dnnl.types.layout_input import read_bool, read_int, read_integers, read_sequence
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.shaped_layout import (
    Shape,
    ShapedLayout,
    check_permutation,
    inverse,
    same_places,
)
from dnnl.types.tag import FormatTag

Axes = int | Sequence[int]


class ShapedBuffer(Value):
    """A tensor as a framework sees it, in memory of any layout.

    ``memory`` has the axes of an operation, ``shape`` those of the framework. ``permutation`` maps
    one to the other: axis ``d`` of the memory is axis ``permutation[d]`` of ``shape``. Activations
    (batch, height, width, channels) in a memory of (batch, channels, height, width) have
    ``(0, 3, 1, 2)``. Without one the axes are the same.

    A buffer does not change: methods return another one, on the same bytes where the layout allows
    it. Where data has to move, a reorder moves it, on the engine of the memory; it waits for all
    executions that were submitted before and write the memory. The bytes are the user's to change.

    Raises `InvalidArguments` for what is no `Memory` and for a permutation that has not each axis
    once.
    """

    __slots__ = ("layout", "memory")

    memory: Memory
    #: The descriptor of the memory, and the permutation.
    layout: ShapedLayout

    def __init__(self, memory: Memory, permutation: Sequence[int] | None = None) -> None:
        if not isinstance(memory, Memory):
            hint = "ShapedBuffer.from_numpy takes an array, ShapedBuffer.empty a shape"
            given = type(memory).__name__
            raise InvalidArguments("memory", given, "expected a dnnl.Memory", hint)
        order = _read_permutation(permutation, memory.desc.ndims)
        object.__setattr__(self, "memory", memory)
        object.__setattr__(self, "layout", ShapedLayout(memory.desc, order))

    def __setattr__(self, name: str, value: object) -> None:
        hint = "make another ShapedBuffer"
        raise AttributeError(f"the fields of a ShapedBuffer are fixed, {name!r} too; {hint}")

    @classmethod
    @allocating
    def from_numpy(
        cls,
        array: ArrayLike,
        permutation: Sequence[int] | None = None,
        engine: Engine | None = None,
        layout: FormatTag | str | None = None,
    ) -> ShapedBuffer:
        """The tensor of an array, or of what NumPy or DLPack can read as one, with its shape.

        Without ``layout`` the memory is the array's own, where the engine can use that of the host
        (see `Memory.from_numpy`). ``layout`` is a tag of the memory's axes, such as ``"nChw16c"``:
        a reorder writes a copy. ``engine`` is by default the first cpu engine.
        """
        source = array_of(array)
        order = _read_permutation(permutation, source.ndim)
        if layout is not None and any(n < 0 or n % source.itemsize for n in source.strides):
            source = source.copy()  # no descriptor has such strides
        made = cls(Memory.from_numpy(source.transpose(order), engine=engine), order)
        return made if layout is None else made.reorder_to(layout)

    @classmethod
    @allocating
    def empty(
        cls,
        shape: Sequence[int],
        data_type: DataType | str,
        permutation: Sequence[int] | None = None,
        engine: Engine | None = None,
        layout: FormatTag | str | None = None,
    ) -> ShapedBuffer:
        """A buffer of the framework's ``shape`` in new memory, which is not initialised.

        It is row-major in the framework's order, or in ``layout``, a tag of the memory's axes.
        Write the padding of a blocked one (zeros), or let a primitive write all of it.
        """
        plain = MemoryDesc(read_sequence("shape", shape, "expected a sequence of sizes"), data_type)
        order = _read_permutation(permutation, plain.ndims)
        desc = plain.permute_axes(inverse(order))
        desc = desc if layout is None else desc.with_tag(layout)
        where = first_cpu() if engine is None else checked_engine(engine)
        return cls(Memory(desc, where), order)

    @property
    def permutation(self) -> tuple[int, ...]:
        """The framework's axis that each axis of the memory is."""
        return self.layout.permutation

    @property
    def shape(self) -> Shape:
        """The framework's shape."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.memory.desc.ndims

    @property
    def data_type(self) -> DataType:
        """The type of the elements."""
        return self.memory.desc.data_type

    @property
    def engine(self) -> Engine:
        """Where the memory is."""
        return self.memory.engine

    def axes_for(self, permutation: Sequence[int] | None = None) -> tuple[int, ...]:
        """How `view` renames axes: axis ``d`` of the memory becomes axis ``axes_for(p)[d]``.

        It is this buffer's permutation followed by the inverse of the required one. Raises
        `InvalidArguments` as the constructor does.
        """
        return self.layout.axes_for(_read_permutation(permutation, self.ndim))

    def view(self, permutation: Sequence[int] | None = None) -> Memory:
        """The same bytes with the axes that an operation requires; nothing is copied.

        ``permutation`` says which framework axis each axis of the operation is: ``(3, 2, 0, 1)``
        for weights (height, width, in, out). Without one they are the framework's.
        """
        return self._over(self.layout.view(_read_permutation(permutation, self.ndim)))

    def memory_for(self, desc: MemoryDesc, permutation: Sequence[int] | None = None) -> Memory:
        """The tensor as a primitive wants it: ``desc`` is what its description chose, and
        ``permutation`` the framework axis of each of its axes.

        It is `view` where that has the layout and the type, else a new memory, written by a
        reorder. Raises `InvalidArguments` where ``desc`` has other dims.
        """
        seen = self.view(permutation)
        if not isinstance(desc, MemoryDesc):
            raise InvalidArguments("desc", desc, "expected a MemoryDesc", "such as pd.src_desc")
        if desc.encoding is None and seen.desc.encoding is None:
            plain = seen.desc.compensation == desc.compensation
            if plain and same_places(seen.desc, desc):
                return seen if seen.desc == desc else self._over(desc)
        return seen.reorder_to(desc)

    def transpose(self, *axes: Axes, move: bool = False) -> ShapedBuffer:
        """The buffer whose axis ``i`` is axis ``axes[i]`` of this one; without axes all are
        reversed. Axes are integers, or one sequence of them; negative ones count from the end.

        No data moves: the permutation changes. With ``move`` the permutation stays, the dims of the
        memory change, and a reorder moves the data into a layout of the same format.

        Raises `InvalidArguments` for axes that are not each of those of the buffer once.
        """
        given = _read_integers("axes", axes) if axes else tuple(range(self.ndim))[::-1]
        order = [axis + self.ndim if -self.ndim <= axis < 0 else axis for axis in given]
        check_permutation("axes", order, self.ndim)
        turned = ShapedBuffer(self.memory, self.layout.transpose(order).permutation)
        if not read_bool("move", move):
            return turned
        seen = turned.view(self.permutation)
        return ShapedBuffer(seen.reorder_to(_like(self.memory.desc, seen.desc)), self.permutation)

    def reshape(self, *shape: Axes, data_type: DataType | str | None = None) -> ShapedBuffer:
        """The buffer of another shape: integers, or one sequence of them; -1 is the size that is
        left.

        The elements are in the framework's order, as in NumPy. Data moves, by a reorder, only where
        no strides or blocks can describe the shape on the same bytes, or ``data_type`` is another
        one. The permutation of the result is the identity.

        Raises `InvalidArguments` for a shape with another number of elements.
        """
        wanted = _read_shape(_read_integers("shape", shape), self.shape)
        same = data_type is None or coerce(DataType, data_type, "data_type") is self.data_type
        layout = self.layout.reshape(wanted)
        if layout is not None and same:
            return ShapedBuffer(self._over(layout.desc), layout.permutation)
        moved = self.view().reorder_to(self.layout.movable(wanted), data_type)
        return ShapedBuffer(moved).reshape(wanted)

    def flatten(self, axis: int = 1) -> ShapedBuffer:
        """The matrix of the axes before ``axis``, and of those from it on; see `reshape`.

        ``axis`` is from ``-ndim`` to ``ndim``.
        """
        first = read_int("axis", axis)
        if not -self.ndim <= first <= self.ndim:
            rule = f"expected {-self.ndim}..{self.ndim} for {self.ndim} axes"
            nearest = max(-self.ndim, min(first, self.ndim))
            raise InvalidArguments("axis", first, rule, f"such as {nearest}")
        place = first + self.ndim if first < 0 else first
        return self.reshape(prod(self.shape[:place]), prod(self.shape[place:]))

    def reorder_to(
        self,
        layout: MemoryDesc | FormatTag | str | None = None,
        data_type: DataType | str | None = None,
        permutation: Sequence[int] | None = None,
        engine: Engine | None = None,
    ) -> ShapedBuffer:
        """The same tensor in new memory of another layout, data type or engine; its padding is
        zero.

        ``layout`` is a tag or a descriptor of axes that have ``permutation``; by default the layout
        and the permutation of this buffer. It is a reorder: each element is rounded once, integers
        saturate. Raises `InvalidArguments` as `Memory.reorder_to` does.
        """
        order = self.permutation if permutation is None else permutation
        seen = self.view(order)
        if engine is not None and checked_engine(engine) != self.engine:
            desc = _wanted(seen.desc, layout, data_type)
            made = ShapedBuffer(Memory(desc, engine), order)
            made.copy_from(self)
            return made
        return ShapedBuffer(seen.reorder_to(layout, data_type), order)

    def copy_from(self, source: ShapedBuffer | ArrayLike) -> None:
        """Write the tensor of another buffer, or of an array, into this memory, and wait.

        It may have another layout, data type, permutation and engine. Raises `InvalidArguments` for
        another shape and for memory that is read-only.
        """
        own = source if isinstance(source, ShapedBuffer) else ShapedBuffer.from_numpy(source)
        if own.shape != self.shape:
            rule = f"must have the shape {self.shape}"
            raise InvalidArguments("source", f"shape {own.shape}", rule, "reshape(...) gives it")
        src = own.view(self.permutation)
        for memory in (src, self.memory):
            memory.engine.read(memory.buffer, 0)  # which waits for all that uses it
        reorders.run(src, self.memory)

    @allocating
    def numpy(self) -> np.ndarray:
        """The tensor as an array of ``shape``: a view wherever strides can say the layout and the
        host can touch the memory, else a read-only copy."""
        seen = self.view()
        if seen.desc.inner_blocks and not seen.desc.has_zero_dim:
            seen = seen.reorder_to(MemoryDesc(seen.desc.dims, seen.desc.data_type))
            array = seen.numpy()
            array.flags.writeable = False
            return array
        return seen.numpy()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        own = self.engine.host_memory and not self.memory.desc.inner_blocks
        if copy is False and not own:
            raise ValueError(f"NumPy cannot view the layout {self.memory.desc} without a copy")
        return np.array(array, dtype, copy=copy)

    def _over(self, desc: MemoryDesc) -> Memory:
        return self.memory if desc == self.memory.desc else self.memory.part(desc)

    def __reduce__(self) -> tuple[object, ...]:
        return ShapedBuffer, (self.memory, self.permutation)

    def __repr__(self) -> str:
        return f"ShapedBuffer({self.memory!r}, {self.permutation})"


def _read_permutation(permutation: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """A permutation of ``count`` axes; the identity for None."""
    if permutation is None:
        return tuple(range(count))
    order = read_integers("permutation", permutation)
    check_permutation("permutation", order, count)
    return order


def _read_integers(argument: str, given: Sequence[object]) -> tuple[int, ...]:
    """Integers that are arguments of their own, or one sequence of them."""
    if len(given) == 1 and not isinstance(given[0], int | np.integer):
        rule = "expected integers, or one sequence of them"
        given = read_sequence(argument, given[0], rule)
    try:
        return tuple(operator.index(number) for number in given)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidArguments(argument, tuple(given), "expected integers") from None


def _read_shape(shape: Shape, old: Shape) -> Shape:
    """A shape whose -1 is replaced by the size that is left of ``old``."""
    open_places = [place for place, size in enumerate(shape) if size == -1]
    if any(size < -1 for size in shape):
        hint = f"such as {tuple(max(size, -1) for size in shape)}"
        raise InvalidArguments("shape", shape, "sizes are not negative, -1 aside", hint)
    if not open_places:
        return shape
    count, known = prod(old), prod(size for size in shape if size != -1)
    if len(open_places) > 1:
        first = open_places[0]
        hint = f"such as {tuple(1 if s == -1 and p != first else s for p, s in enumerate(shape))}"
        raise InvalidArguments("shape", shape, "only one size may be -1", hint)
    if known == 0 or count % known:
        rule = f"{count} elements, as {old} has, must be a multiple of the other sizes' {known}"
        raise InvalidArguments("shape", shape, rule, f"{(count,)} is one")
    return tuple(count // known if size == -1 else size for size in shape)


def _like(desc: MemoryDesc, turned: MemoryDesc) -> MemoryDesc:
    """A layout for ``turned``, which is ``desc`` with other dims: of the same tag, or else dense,
    with the dimensions in the same order."""
    if desc.tag is not None:
        return turned.with_tag(desc.tag)
    order = sorted(range(desc.ndims), key=lambda d: -desc.strides[d])
    return turned.with_tag(FormatTag.of(order))


def _wanted(
    own: MemoryDesc, layout: MemoryDesc | FormatTag | str | None, data_type: DataType | str | None
) -> MemoryDesc:
    """What `Memory.reorder_to` makes of these arguments."""
    if isinstance(layout, MemoryDesc):
        return layout if data_type is None else layout.with_data_type(data_type)
    desc = own if data_type is None else own.with_data_type(data_type)
    return desc if layout is None else desc.with_tag(layout)
