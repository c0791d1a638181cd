"""Memory descriptors: the shape, the data type and the layout of a tensor, without its data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import final

from dnnl.errors import InvalidArguments
from dnnl.types import layout as layouts
from dnnl.types.compensation import Compensation, check_compensation
from dnnl.types.desc_text import DescText
from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.encoded_desc import EncodedDesc
from dnnl.types.encoding import Encoding, check_index_type, check_values
from dnnl.types.kinds import RUNTIME_DIM, FormatKind, coerce
from dnnl.types.layout import Layout
from dnnl.types.layout_input import (
    ANY,
    UNDEF,
    by_strides,
    by_tag,
    check_any,
    check_nibbles,
    no_places,
    read_blocks,
    read_dims,
    read_int,
    read_integers,
    read_strides,
)
from dnnl.types.runtime_dim import promises_of
from dnnl.types.size import is_known, surely_equal, typical
from dnnl.types.tag import FormatTag

_INT64_MAX = 2**63 - 1
_NONE: tuple[tuple[int, int], ...] = ()
_KEPT = 4096  # descriptors of equal arguments that are one object
_ONE = frozenset({1})


@final
class MemoryDesc(EncodedDesc, DescText):
    """A tensor's dims, data type and layout: immutable, comparable, hashable, picklable.

    ``layout`` is a format tag (or its name), one stride per dimension, or None for dense
    row-major. Strides count elements; 0 broadcasts. ``"any"`` leaves the layout to the primitive.

    With strides, ``inner_blocks`` (pairs of dimension and size, outermost first) and
    ``padded_dims`` (by default ``dims`` rounded up to whole blocks) describe any blocked layout;
    a stride then leads from one outer block to the next. ``offset0`` is the distance of the
    first element from the beginning of the buffer. Dims, strides and ``offset0`` that only
    execution knows are RUNTIME_DIM, or dims a `RuntimeDim`, which promises more. ``compensation``
    describes sums of s8 weights behind them; ``compensation_desc`` is where they are. Only a
    reorder writes such weights.

    Descriptors are equal if they put equal elements in equal places: the stride of a dimension
    of size 1 does not count, nor does how the layout was spelled.

    ``size`` is the length in bytes of a buffer that holds the tensor: from the buffer's
    beginning to the last element, padding and compensation included; 0 without elements or layout,
    and RUNTIME_DIM if it is known only at execution.
    """

    __slots__ = (
        "_hash",
        "_key",
        "_kind",
        "_layout",
        "_layout_numbers",
        "_tag",
        "blocks",
        "compensation",
        "data_type",
        "dims",
        "encoding",
        "format_kind",
        "inner_blocks",
        "ndims",
        "offset0",
        "padded_dims",
        "size",
        "strides",
    )

    ndims: int
    size: int
    _tag: FormatTag | None
    _kind: tuple[object, ...]
    _layout_numbers: tuple[int, ...]
    _key: tuple[object, ...]
    _hash: int

    def __new__(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        layout: FormatTag | str | Sequence[int] | None = None,
        *,
        inner_blocks: Sequence[tuple[int, int]] = _NONE,
        padded_dims: Sequence[int] | None = None,
        offset0: int = 0,
        compensation: Compensation | None = None,
    ) -> MemoryDesc:
        shape = read_dims(dims)
        dtype = coerce(DataType, data_type, "data_type")
        given: FormatTag | str | tuple[int, ...] | None
        if layout is None or isinstance(layout, str | FormatTag):
            given = layout
        else:
            given = read_strides(layout, len(shape))
        first = read_int("offset0", offset0)
        plain = inner_blocks is _NONE and padded_dims is None and compensation is None
        if plain and not first and not (RUNTIME_DIM in shape and promises_of(shape)):
            return _made_once(shape, dtype, given)
        return cls._made(shape, dtype, given, inner_blocks, padded_dims, first, compensation)

    @classmethod
    def _made(
        cls,
        dims: tuple[int, ...],
        data_type: DataType,
        layout: FormatTag | str | tuple[int, ...] | None,
        inner_blocks: Sequence[tuple[int, int]] = _NONE,
        padded_dims: Sequence[int] | None = None,
        offset0: int = 0,
        compensation: Compensation | None = None,
    ) -> MemoryDesc:
        """Return a descriptor of numbers that have been read, after checking all others."""
        if data_type is DataType.undef:
            rule = "a tensor has a data type"
            raise InvalidArguments("data_type", "undef", rule, "MemoryDesc.zero() is no tensor")
        inner = read_blocks(inner_blocks, len(dims))
        tag = None
        if layout is None and not inner and padded_dims is None:
            places = layouts.dense(dims, range(len(dims)))
        elif isinstance(layout, str | FormatTag):
            tag = FormatTag(layout)
            if inner or padded_dims is not None:
                rule = "a format tag already says which blocks and padding there are"
                raise InvalidArguments("layout", str(layout), rule, "give strides instead")
            places = by_tag(dims, tag, str(layout))
        else:
            places = by_strides(dims, layout, inner, padded_dims)
            check_nibbles(data_type, places)
        if tag is ANY:
            check_any(dims, offset0)
        if offset0 < 0 and offset0 != RUNTIME_DIM:
            raise InvalidArguments("offset0", offset0, "must not be negative")
        kind = FormatKind.any if tag is ANY else FormatKind.blocked
        if offset0:
            places = places._replace(offset0=offset0)
        check_compensation(compensation, data_type, kind, places)
        return cls._of(data_type, kind, places, tag, compensation)

    @classmethod
    def _of(
        cls,
        data_type: DataType,
        kind: FormatKind,
        places: Layout,
        tag: FormatTag | None = None,
        compensation: Compensation | None = None,
        encoding: Encoding | None = None,
    ) -> MemoryDesc:
        """Return a descriptor of fields that are known to be sound; ``tag`` may be None where it is
        not known yet."""
        made = object.__new__(cls)
        dims, padded, strides, inner, offset0 = places
        meant = strides  # those that lead anywhere
        if strides and not _ONE.isdisjoint(padded):
            pairs = zip(padded, strides, strict=True)
            meant = tuple(0 if surely_equal(size, 1) else stride for size, stride in pairs)
        promises = promises_of(dims) if RUNTIME_DIM in dims else ()
        numbers = dims, padded, meant, inner, offset0, promises
        key = (data_type, kind, *numbers, compensation, encoding)
        put = object.__setattr__
        put(made, "dims", dims)
        put(made, "ndims", len(dims))
        put(made, "data_type", data_type)
        put(made, "format_kind", kind)
        put(made, "padded_dims", padded)
        put(made, "strides", strides)
        put(made, "inner_blocks", inner)
        put(made, "blocks", places.blocks)
        put(made, "offset0", offset0)
        put(made, "compensation", compensation)
        put(made, "encoding", encoding)
        if encoding is None:
            put(made, "size", _size(data_type, kind, places, compensation))
        else:
            put(made, "size", sum(part.size for part in made.buffers))
        put(made, "_layout", places)
        put(made, "_tag", tag)
        put(made, "_key", key)
        put(made, "_hash", hash(key))
        return made

    @classmethod
    def of_layout(cls, model: MemoryDesc, places: Layout) -> MemoryDesc:
        """Return the descriptor of a tensor like ``model``, whose numbers are those of ``places``,
        which are known to be sound. No tag spells open sizes if there are other dimensions."""
        tag = model._tag if len(places.dims) == model.ndims else UNDEF
        if tag is UNDEF and all(map(is_known, (*places.dims, *places.strides))):
            tag = None  # whoever asks looks for it
        return cls._of(model.data_type, model.format_kind, places, tag, model.compensation)

    @classmethod
    def encoded(
        cls,
        dims: Sequence[int],
        data_type: DataTypeLike,
        encoding: Encoding,
        index_type: DataTypeLike = DataType.s32,
    ) -> MemoryDesc:
        """Return the descriptor of a tensor that is stored in several buffers."""
        if not isinstance(encoding, Encoding):
            near = "MemoryDesc.csr, coo, grouped"
            raise InvalidArguments("encoding", encoding, "expected an Encoding", near)
        shape = read_dims(dims)
        dtype = coerce(DataType, data_type, "data_type")
        check_index_type("index_type", index_type)
        check_values(encoding, dtype)
        encoding.check(shape)
        return cls._of(dtype, encoding.format_kind, no_places(shape), encoding=encoding)

    @classmethod
    def zero(cls) -> MemoryDesc:
        """Return the descriptor of no tensor: what an absent optional argument has."""
        return _ZERO

    @property
    def kind(self) -> tuple[object, ...]:
        """All but the numbers: what they are the numbers of."""
        try:
            return self._kind
        except AttributeError:
            head = self.data_type, self.format_kind, self.ndims, self.inner_blocks
            object.__setattr__(self, "_kind", (*head, self.compensation, self.encoding))
            return self._kind

    @property
    def layout_numbers(self) -> tuple[int, ...]:
        """All numbers: dims, padded dims, strides and offset."""
        try:
            return self._layout_numbers
        except AttributeError:
            made = (*self.dims, *self.padded_dims, *self.strides, self.offset0)
            object.__setattr__(self, "_layout_numbers", made)
            return made

    @property
    def buffers(self) -> tuple[MemoryDesc, ...]:
        """The descriptors of the buffers with the tensor: itself, unless it has an encoding."""
        if self.encoding is None:
            return (self,)
        shapes = self.encoding.shapes(self.dims, self.data_type)
        return tuple(MemoryDesc(*shape) for shape in shapes)

    @property
    def is_plain(self) -> bool:
        """Whether the layout is known and strides alone describe it."""
        return self.format_kind is FormatKind.blocked and not self.inner_blocks

    @property
    def has_zero_dim(self) -> bool:
        """Whether the tensor has no elements because a dimension is 0."""
        return 0 in self.dims

    @property
    def has_runtime_values(self) -> bool:
        """Whether a dimension, a stride, the padding or the offset is known only at execution."""
        return self._layout.has_runtime

    @property
    def outer_dims(self) -> tuple[int, ...]:
        """How many outer blocks each dimension has."""
        return self._layout.outer_dims

    @property
    def tag(self) -> FormatTag | None:
        """The tag of the layout (``offset0`` aside), or None where no tag spells it.

        Where dimensions of size 1 allow several it is the one that was given, or else the one
        that :func:`str` shows.
        """
        if self._tag is None and self.format_kind is FormatKind.blocked:
            object.__setattr__(self, "_tag", layouts.find_tag(self._layout) or UNDEF)
        return None if self._tag is UNDEF else self._tag

    def nelems(self, padded: bool = False) -> int:
        """Return the number of elements; RUNTIME_DIM if it is known only at execution."""
        if not isinstance(padded, bool):
            raise InvalidArguments("padded", padded, "expected True or False")
        sizes = self.padded_dims if padded else self.dims
        return RUNTIME_DIM if RUNTIME_DIM in sizes else prod(sizes)

    def is_dense(self, padded: bool = False) -> bool:
        """Whether the elements fill their span of memory: no gap, no broadcast, and no padding
        unless ``padded`` is true."""
        if self.format_kind is not FormatKind.blocked or self._layout.has_runtime:
            return False
        return self.nelems(padded) == layouts.span(self._layout)

    def matches_tag(self, tag: FormatTag | str) -> bool:
        """Whether the tag puts the elements in the same places, ``offset0`` aside."""
        wanted = FormatTag(tag)
        if wanted.ndims != self.ndims or self.format_kind is not FormatKind.blocked:
            return wanted is self.tag
        other = layouts.dense(self.dims, wanted.order, wanted.inner_blocks)
        return layouts.same_strides(self._layout, other)

    def offset(self, index: Sequence[int]) -> int:
        """Return the physical offset, in elements, of the element at a logical index.

        The index may point into the padding, but not outside of ``padded_dims``.
        """
        position = read_integers("index", index)
        self._need_places("offset")
        if len(position) != self.ndims:
            rule = f"expected one number for each of {self.ndims} dimensions"
            raise InvalidArguments("index", position, rule)
        for i, size in zip(position, self.padded_dims, strict=True):
            if not 0 <= i < size:
                rule = f"must be inside the padded dims {self.padded_dims}"
                raise InvalidArguments("index", position, rule)
        return layouts.offset(self._layout, position)

    def compensation_desc(self, kind: str) -> MemoryDesc:
        """Return the descriptor of the sums ``kind``, ``"s8s8"`` or ``"zero_points"``.

        It describes the same buffer: s32, row-major, with size 1 in each dimension that is summed
        over, padded where the weights are.
        """
        masks = self.compensation.masks if self.compensation is not None else {}
        if self.compensation is None or kind not in tuple(masks):
            have = f"these weights have {', '.join(masks)}" if masks else "this tensor has none"
            raise InvalidArguments("kind", kind, f"expected a compensation that is there; {have}")
        nbytes = self.data_type.nbytes(self.offset0 + layouts.span(self._layout))
        places = self.compensation.layouts(self._layout, nbytes)[kind]
        return self._of(DataType.s32, FormatKind.blocked, places)

    def reshape(self, dims: Sequence[int]) -> MemoryDesc:
        """Return the descriptor of the same elements in the same places with other ``dims``.

        Dimensions of size 1 may come and go; neighbours may be merged or cut where they are
        unblocked, unpadded and follow each other in memory without gap.
        """
        shape = read_dims(dims)
        self._need_no_compensation("reshape")
        if self.is_zero or self.encoding or RUNTIME_DIM in (*self.dims, *self.strides, *shape):
            rule = "only a tensor whose dims and strides are known can be reshaped"
            raise InvalidArguments("dims", shape, rule)
        if prod(shape) != prod(self.dims):
            rule = f"must have the volume of {self.dims}, which is {prod(self.dims)}"
            raise InvalidArguments("dims", shape, rule, f"these have {prod(shape)}")
        if len(shape) == self.ndims and all(map(surely_equal, shape, self.dims)):
            return self
        if self.format_kind is FormatKind.any:
            return self._of(self.data_type, FormatKind.any, no_places(shape), ANY)
        places = layouts.reshape(self._layout, shape)
        return self._of(self.data_type, FormatKind.blocked, places)

    def permute_axes(self, perm: Sequence[int]) -> MemoryDesc:
        """Return the descriptor whose dimension ``perm[d]`` is dimension ``d`` of this one."""
        axes = read_integers("perm", perm)
        self._need_no_compensation("permute_axes")
        if sorted(axes) != list(range(self.ndims)):
            rule = f"expected each of 0..{self.ndims - 1} once"
            raise InvalidArguments("perm", axes, rule)
        encoding = None if self.encoding is None else self.encoding.permuted(axes)
        if self.encoding is not None and encoding is None:
            self._need_places("permute_axes")
        if self.format_kind is not FormatKind.blocked:
            shape = tuple(size for _, size in sorted(zip(axes, self.dims, strict=True)))
            places = no_places(shape)
            return self._of(self.data_type, self.format_kind, places, self._tag, None, encoding)
        tag = self.tag
        if tag is not None:
            blocks = [(axes[dim], size) for dim, size in tag.inner_blocks]
            tag = FormatTag.of([axes[dim] for dim in tag.order], blocks)
        return self._of(self.data_type, self.format_kind, layouts.permute(self._layout, axes), tag)

    def submemory(self, dims: Sequence[int], offsets: Sequence[int]) -> MemoryDesc:
        """Return the descriptor of the region of ``dims`` that begins at index ``offsets``.

        It describes the same buffer. In a blocked dimension the region must begin on a block,
        and end on a block, within its first block or where the tensor ends.
        """
        shape = read_dims(dims)
        start = read_integers("offsets", offsets)
        self._need_places("submemory")
        self._need_no_compensation("submemory")
        for argument, values in (("dims", shape), ("offsets", start)):
            if len(values) != self.ndims:
                rule = f"expected one number for each of {self.ndims} dimensions"
                raise InvalidArguments(argument, values, rule)
            if RUNTIME_DIM in values:
                raise InvalidArguments(argument, values, "a region has no runtime dimension")
        places = layouts.part(self._layout, shape, start)
        return self._of(self.data_type, FormatKind.blocked, places)

    def with_data_type(self, data_type: DataTypeLike) -> MemoryDesc:
        """Return the same layout, in elements, for another data type."""
        dtype = coerce(DataType, data_type, "data_type")
        if dtype is self.data_type:
            return self
        if self.is_zero or dtype is DataType.undef:
            raise InvalidArguments("data_type", str(dtype), "a tensor has a data type")
        self._need_no_compensation("with_data_type")
        return self._of(dtype, self.format_kind, self._layout, self._tag, encoding=self.encoding)

    def undecided(self, data_type: DataTypeLike) -> MemoryDesc:
        """Return the dims with another data type and the layout ``any``, for a tensor whose layout
        follows from another one."""
        dtype = coerce(DataType, data_type, "data_type")
        return self._of(dtype, FormatKind.any, no_places(self.dims), ANY)

    def with_tag(self, tag: FormatTag | str) -> MemoryDesc:
        """Return the dims and data type, and nothing else, in another layout."""
        return MemoryDesc(self.dims, self.data_type, tag)

    def with_compensation(self, compensation: Compensation | None) -> MemoryDesc:
        """Return the same s8 weights with other sums behind them, or with none."""
        check_compensation(compensation, self.data_type, self.format_kind, self._layout)
        return self._of(self.data_type, self.format_kind, self._layout, self._tag, compensation)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, MemoryDesc):
            return NotImplemented
        return self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"MemoryDesc is immutable, {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"MemoryDesc is immutable, {name!r} cannot be deleted")

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.data_type, self.format_kind, tuple(self._layout), self._tag)
        return _restore, (*fields, self.compensation, self.encoding)

    def _need_places(self, what: str) -> None:
        """Raise unless every element has a place that is known now."""
        if self.format_kind is not FormatKind.blocked or self._layout.has_runtime:
            rule = f"{what} needs a layout: no 'any', no runtime dimensions, no encoding"
            raise InvalidArguments("desc", str(self), rule)

    def _need_no_compensation(self, what: str) -> None:
        """Raise if there is compensation behind the elements, which a change would invalidate."""
        if self.compensation is not None:
            rule = f"{what} would leave the compensation behind"
            raise InvalidArguments("desc", str(self), rule, "with_compensation(None) drops it")


def _restore(
    data_type: DataType,
    kind: FormatKind,
    places: Iterable[object],
    tag: FormatTag | None,
    compensation: Compensation | None,
    encoding: Encoding | None,
) -> MemoryDesc:
    """Return an unpickled descriptor."""
    layout = Layout(*places)  # type: ignore[arg-type]
    return MemoryDesc._of(data_type, kind, layout, tag, compensation, encoding)


def _size(
    data_type: DataType, kind: FormatKind, places: Layout, compensation: Compensation | None
) -> int:
    """Return the bytes from the beginning of the buffer to the last element or sum."""
    sizes = places.padded_dims
    volume = typical(prod(sizes))
    counts = 0 < volume <= _INT64_MAX  # nothing is empty or unknown, the common case
    if not counts and typical(prod(size for size in sizes if size > 0)) > _INT64_MAX:
        raise InvalidArguments("dims", places.dims, "the number of elements must fit 64 bits")
    if kind is not FormatKind.blocked:
        return 0
    elements = layouts.span(places)
    if elements in (0, RUNTIME_DIM):
        return elements
    total = data_type.nbytes(places.offset0 + elements)
    if compensation is not None:
        total = compensation.nbytes(places, total)
    if typical(total) > _INT64_MAX:
        rule = f"the tensor spans {total} bytes, which does not fit 64 bits"
        raise InvalidArguments("dims", places.dims, rule)
    return total


_ZERO = MemoryDesc._of(DataType.undef, FormatKind.undef, no_places(()), None)
# Equal arguments give one object: descriptors never change, and making one takes ten times as long.
_made_once = lru_cache(_KEPT)(MemoryDesc._made)
