"""Memory: a descriptor, and the bytes that it describes on an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from dnnl.errors import InvalidArguments
from dnnl.onednn import Value
from dnnl.runtime import dlpack, reorders
from dnnl.runtime.backend import Argument, Buffer, Shared
from dnnl.runtime.elements import elements_of, plain_view, put_elements
from dnnl.runtime.encoded import decode, encode, sparse_parts
from dnnl.runtime.engine import Engine, checked_engine, first_cpu
from dnnl.runtime.storage import address_of, allocating, bytes_of
from dnnl.runtime.wrap import ArrayLike, array_of, wrap
from dnnl.types.dtype import DataType
from dnnl.types.encoding import SPARSE, Grouped, Packed
from dnnl.types.kinds import FormatKind
from dnnl.types.layout_input import read_int
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.tag import FormatTag


class Memory(Value):
    """A tensor's bytes: ``desc.size`` of them, laid out as ``desc`` says.

    Without ``buffer`` the memory is allocated, 64-byte aligned and not initialised. With it the
    buffer is used as it is, without copy, and kept alive: any object of the buffer protocol or of
    DLPack. One with a single axis counts as plain bytes; one with a shape must have the shape and
    strides of ``desc``. A memory is ``readonly`` if its buffer is: a source of executions and never
    what they write.

    ``pointer`` is the address of the bytes. Raises `InvalidArguments` and `OutOfMemory`. The fields
    are fixed, since generated code trusts them; the bytes are the user's to change.

    A pickle, or a copy, has the bytes and is independent of this memory. Arrays that share memory
    with this one are writable, unless it is ``readonly``; those that are copies are read-only,
    since what is written to them would be lost, unless a copy or another type was asked for.

    A tensor with an encoding has several buffers: ``parts`` are the memories of each, in the order
    of ``desc.buffers``, and ``buffer``, where it is given, is a sequence of as many buffers, or of
    memories. A tensor without one is its own only part. `from_sparse` takes SciPy's matrices.

    The host may not be able to touch the memory of an engine. Then NumPy arrays are copies, and
    there is neither ``data`` nor ``pointer``. ``buffer`` must be memory of that engine: a `Buffer`,
    of a handle and the offset at which the tensor's bytes begin, or an object that the engine knows
    as memory, such as USM on SYCL devices. What reads and writes the memory from the host waits
    first for all executions that were submitted before and touch it. It raises none of their
    errors: events and streams do. Executions among themselves need an order that the user gives, by
    a stream or by events.
    """

    __slots__ = ("__weakref__", "_parts", "argument", "buffer", "desc", "engine", "readonly")

    desc: MemoryDesc
    engine: Engine
    #: Where the bytes are, as the engine's queues take it: an address on the host, else `buffer`.
    argument: Argument
    #: Where the bytes are, and what owns them.
    buffer: Buffer
    #: Whether nothing may write the bytes.
    readonly: bool
    _parts: tuple[Memory, ...]

    def __init__(self, desc: MemoryDesc, engine: Engine, buffer: object = None) -> None:
        _check_desc(desc)
        checked_engine(engine)
        if desc.encoding is not None:
            self._assemble(desc, engine, _parts(desc, engine, buffer))
            return
        if buffer is None:
            place = engine.allocate(desc.size)
        elif engine.host_memory:
            place = _on_host(wrap(desc, buffer))
        else:
            place = _checked_buffer(engine, engine.wrap(desc, buffer))
        self._fill(desc, engine, place)

    def _fill(self, desc: MemoryDesc, engine: Engine, place: Buffer) -> None:
        """Set every field."""
        put = object.__setattr__
        put(self, "desc", desc)
        put(self, "engine", engine)
        put(self, "argument", place if place.data is None else place.handle)
        put(self, "buffer", place)
        put(self, "readonly", place.data is not None and not place.data.flags.writeable)
        put(self, "_parts", ())

    def _assemble(self, desc: MemoryDesc, engine: Engine, parts: tuple[Memory, ...]) -> None:
        """Set every field of a tensor of several buffers; the first one represents it."""
        self._fill(desc, engine, parts[0].buffer)
        object.__setattr__(self, "_parts", parts)

    @property
    def parts(self) -> tuple[Memory, ...]:
        """The memories of the buffers that hold the tensor: itself, unless it has an encoding."""
        return self._parts or (self,)

    def __setattr__(self, name: str, value: object) -> None:
        hint = "make another Memory; its bytes can be written, memory.data[:] = ..."
        raise AttributeError(f"the fields of a Memory are fixed, {name!r} too; {hint}")

    @classmethod
    @allocating
    def from_numpy(
        cls,
        array: ArrayLike,
        tag: FormatTag | str | None = None,
        engine: Engine | None = None,
    ) -> Memory:
        """The tensor of a NumPy array, or of what NumPy or DLPack can read as one.

        Without ``tag`` the memory is the array's own, with its strides; both see writes, and of
        a read-only array the memory is read-only too. With a tag it is a copy in that layout.
        Elements of 4 bits are always packed into a copy, and an engine with memory of its own has a
        copy of everything. ``engine`` is by default the first cpu engine. With ``"csr"`` or
        ``"coo"`` it is a sparse matrix of all elements other than zero.
        """
        source = array_of(array)
        where = first_cpu() if engine is None else checked_engine(engine)
        data_type = DataType.from_numpy(source.dtype)
        if isinstance(tag, str) and tag in SPARSE:
            encoding = SPARSE[tag](int(np.count_nonzero(source)))
            return cls._filled(MemoryDesc.encoded(source.shape, data_type, encoding), where, source)
        if tag is not None:
            return cls._filled(MemoryDesc(source.shape, data_type, tag), where, source)
        if data_type.bits < 8:
            return cls._filled(MemoryDesc(source.shape, data_type), where, source)
        desc = _desc_of(source, data_type)
        if not where.host_memory:
            return cls._filled(desc, where, source)
        made = object.__new__(cls)  # as what is made of an array fits it, and need not be checked
        made._fill(desc, where, _on_host(bytes_of(source, desc.size)))
        return made

    @classmethod
    @allocating
    def from_sparse(cls, matrix: Any, engine: Engine | None = None) -> Memory:
        """The tensor of a sparse matrix of SciPy, in its format csr or coo.

        Indices are s32 and sorted by rows, and what is not is copied; other buffers are shared with
        the matrix, where the engine can use the host's memory.
        """
        where = first_cpu() if engine is None else checked_engine(engine)
        desc, arrays = sparse_parts(matrix)
        pairs = zip(desc.buffers, arrays, strict=True)
        if where.host_memory:
            return cls(desc, where, arrays)
        return cls(desc, where, [cls._filled(own, where, array) for own, array in pairs])

    @classmethod
    def _filled(cls, desc: MemoryDesc, engine: Engine, array: np.ndarray) -> Memory:
        if desc.encoding is not None:
            pairs = zip(desc.buffers, encode(desc, array), strict=True)
            return cls(desc, engine, [cls._filled(own, engine, part) for own, part in pairs])
        made = cls(desc, engine)
        data = made.buffer.data
        staged = np.empty(desc.size, np.uint8) if data is None else data
        put_elements(desc, staged, array)
        if data is None:
            made.write(staged)
        return made

    def _need_one_buffer(self, what: str) -> None:
        """Raise for a tensor of several buffers."""
        if len(self._parts) > 1:
            rule = f"this tensor has {len(self._parts)} buffers"
            raise InvalidArguments(what, str(self.desc), rule, "each of memory.parts has one")

    def _check_writable(self) -> None:
        if self.readonly:
            rule = "the buffer of this memory is read-only"
            raise InvalidArguments("memory", str(self.desc), rule, "make a memory of a copy of it")

    @property
    def pointer(self) -> int:
        """The address of the bytes."""
        self._need_one_buffer("memory.pointer")
        if self.buffer.data is None:
            rule = f"memory of {self.engine!r} has no address for the host"
            raise InvalidArguments("memory.pointer", str(self.desc), rule, "see memory.buffer")
        address: int = self.buffer.handle
        return address

    @property
    def data(self) -> NDArray[np.uint8]:
        """All bytes as a flat uint8 array, not copied."""
        self._need_one_buffer("memory.data")
        data = self.buffer.data
        if data is None:
            rule = f"the host cannot touch memory of {self.engine!r}"
            raise InvalidArguments("memory.data", str(self.desc), rule, "read() and write() copy")
        return data[:]  # flags that are set on a view change nothing here

    def part(self, desc: MemoryDesc, offset: int = 0) -> Memory:
        """The bytes from ``offset`` on as another tensor, shared with this one."""
        self._need_one_buffer("memory.part()")
        _check_desc(desc)
        begin = read_int("offset", offset)
        if begin < 0 or begin + desc.size > self.desc.size:
            rule = f"{desc.size} bytes from there on must be within the {self.desc.size} there are"
            raise InvalidArguments("offset", offset, rule)
        if self.buffer.data is not None:
            return Memory(desc, self.engine, self.buffer.data[begin : begin + desc.size])
        own = self.buffer
        return Memory(desc, self.engine, own._replace(offset=own.offset + begin))

    @allocating
    def fill(self, array: ArrayLike) -> None:
        """Write the elements of an array of shape ``desc.dims``; padding becomes zero.

        They are converted to the data type as NumPy does.
        """
        if self._parts:
            rule = "the elements of this tensor are transformed or indexed"
            raise InvalidArguments(
                "memory.fill()", str(self.desc), rule, "reorder from a plain one"
            )
        source = array_of(array)
        if source.shape != self.desc.dims or source.dtype.kind == "c":
            rule = f"expected real numbers of the shape {self.desc.dims}"
            raise InvalidArguments("array", f"{source.dtype} of shape {source.shape}", rule)
        staged = np.zeros(self.desc.size, np.uint8)
        with np.errstate(all="ignore"):
            put_elements(self.desc, staged, source.astype(self.desc.data_type.numpy, copy=False))
        self.write(staged)

    @allocating
    def read(self) -> NDArray[np.uint8]:
        """All bytes: ``data`` where there is such, else a read-only copy."""
        self._need_one_buffer("memory.read()")
        data = self.engine.read(self.buffer, self.desc.size)
        return data if self.buffer.data is not None else _frozen(data)

    @allocating
    def write(self, data: NDArray[np.uint8]) -> None:
        """Replace all bytes by ``data``, a flat uint8 array of ``desc.size``."""
        self._need_one_buffer("memory.write()")
        own = array_of(data, "data")
        if own.dtype != np.uint8 or own.shape != (self.desc.size,):
            rule = f"expected {self.desc.size} bytes on one axis"
            raise InvalidArguments("data", f"{own.dtype} array of shape {own.shape}", rule)
        self._check_writable()
        self.engine.write(self.buffer, own)

    def write_from(self, source: Memory) -> None:
        """Replace all bytes by the first ones of a memory on any engine."""
        self._need_one_buffer("memory.write_from()")
        if not isinstance(source, Memory):
            raise InvalidArguments("source", source, "expected a dnnl.Memory")
        source._need_one_buffer("source")
        if source.desc.size < self.desc.size:
            rule = f"expected {self.desc.size} bytes, it has {source.desc.size}"
            raise InvalidArguments("source", str(source.desc), rule)
        self._check_writable()
        self.engine.copy(self.buffer, source.engine, source.buffer, self.desc.size)

    @allocating
    def numpy(self) -> np.ndarray:
        """The logical tensor, of shape ``desc.dims``.

        A view of this memory wherever strides can say its layout; a read-only copy for blocked
        layouts that they cannot, for 4-bit types (of which NumPy keeps each element in a byte), and
        for sparse matrices. `write` and `from_numpy` fill such memories.
        """
        if self._parts:
            dense = self._decoded()
            return dense if self._decodes_in_place else _frozen(dense)
        data = self.read()
        view = plain_view(self.desc, data)
        return _frozen(elements_of(self.desc, data)) if view is None else view

    def _decoded(self) -> np.ndarray:
        """The dense matrix of several buffers: the values where they hold it, else a copy."""
        return decode(self.desc, [part.numpy() for part in self._parts])

    @property
    def _decodes_in_place(self) -> bool:
        return isinstance(self.desc.encoding, Grouped)

    def compensation(self, kind: str) -> NDArray[np.int32]:
        """The sums behind the weights, ``"s8s8"`` or ``"zero_points"``: a view like `numpy`'s.

        They have the dimensions of the weights, of size 1 where the sums are taken. Raises
        `InvalidArguments` where the descriptor has none of the kind.
        """
        desc = self.desc.compensation_desc(kind)
        if self.desc.has_zero_dim:
            return np.zeros(desc.dims, np.int32)
        view = plain_view(desc, self.read())
        assert view is not None, "row-major tensors are plain"
        return view

    @allocating
    def reorder_to(
        self,
        target: MemoryDesc | FormatTag | str | None = None,
        data_type: DataType | str | None = None,
    ) -> Memory:
        """A new memory with the same tensor in another layout or type; its padding is zero.

        ``target`` is a tag or a descriptor of the same dims, or None for the layout that there is.
        It is a reorder: each element is rounded once, integers saturate. What a compensation of
        these weights, or of ``target``, has scaled is scaled back.
        """
        own = self.desc
        if isinstance(target, MemoryDesc):
            desc = target if data_type is None else target.with_data_type(data_type)
        else:
            plain = own if own.compensation is None else own.with_compensation(None)
            plain = plain if data_type is None else plain.with_data_type(data_type)
            desc = plain if target is None else plain.with_tag(target)
        if desc.dims != own.dims:
            rule = f"must have the dims of the tensor, {own.dims}"
            raise InvalidArguments("target", f"{desc} with dims {desc.dims}", rule)
        if own.encoding is not None:
            dense = MemoryDesc(own.dims, own.data_type)
            return self._filled(dense, self.engine, self.numpy()).reorder_to(desc)
        if desc.encoding is not None:
            dense = MemoryDesc(own.dims, desc.data_type)
            return self._filled(desc, self.engine, self.reorder_to(dense).numpy())
        made = Memory(desc, self.engine)
        self.engine.read(self.buffer, 0)  # which waits for all that writes it
        reorders.run(self, made)
        return made

    @allocating
    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        if self._parts:
            if copy is False and not self._decodes_in_place:
                raise ValueError(f"NumPy cannot view the sparse {self.desc} without a copy")
            return np.array(self._decoded(), dtype, copy=copy)
        data = self.read()
        view = plain_view(self.desc, data)
        if copy is False and (view is None or self.buffer.data is None):
            raise ValueError(f"NumPy cannot view the layout {self.desc} without a copy")
        array = elements_of(self.desc, data) if view is None else view
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a copy is needed to make {dtype} of {self.desc}")
            return array.astype(dtype)
        if view is None:
            return array if copy else _frozen(array)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        """The memory as a DLPack capsule, shared; ``BufferError`` if strides cannot say it."""
        shared = self._shared()
        return dlpack.export(self._view(shared), shared.device, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._shared().device

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """USM as dpctl and dpnp read it, not copied; on SYCL engines only."""
        shared = None if self._parts else self.engine.share(self.buffer, self.desc.size)
        if shared is None or shared.queue is None:
            raise AttributeError(f"memory of {self.engine!r} is no USM")
        view = self._view(shared)
        return {
            "data": (view.__array_interface__["data"][0], self.readonly),
            "shape": view.shape,
            "strides": tuple(stride // view.itemsize for stride in view.strides),
            "typestr": view.dtype.str,
            "version": 1,
            "syclobj": shared.queue,
        }

    def _view(self, shared: Shared) -> np.ndarray:
        """The tensor where it is, as an array."""
        view = plain_view(self.desc, shared.data)
        if view is None:
            rule = f"DLPack cannot describe the layout {self.desc} without a copy"
            raise BufferError(f"{rule}; export numpy() or reorder_to() a plain layout")
        return view

    def _shared(self) -> Shared:
        """The bytes for other libraries."""
        if self._parts:
            rule = f"DLPack cannot describe {self.desc}, which has several buffers"
            raise BufferError(f"{rule}; export each of memory.parts")
        shared = self.engine.share(self.buffer, self.desc.size)
        if shared is None:
            raise BufferError(f"DLPack cannot share memory of {self.engine!r}; export numpy()")
        return shared

    def __reduce__(self) -> tuple[object, ...]:
        if self._parts:
            return Memory, (self.desc, self.engine, self._parts)
        return _copied, (self.desc, self.engine, self.read())

    def __repr__(self) -> str:
        return f"Memory({self.desc!r}, {self.engine!r})"


def _on_host(data: NDArray[np.uint8]) -> Buffer:
    return Buffer(address_of(data), 0, data, data)


def _frozen(array: np.ndarray) -> np.ndarray:
    """A copy that nobody is to write to, as nobody else would see it."""
    array.flags.writeable = False
    return array


def _copied(desc: MemoryDesc, engine: Engine, data: NDArray[np.uint8]) -> Memory:
    """A new memory with these bytes."""
    made = Memory(desc, engine)
    made.write(data)
    return made


def _parts(desc: MemoryDesc, engine: Engine, buffers: object) -> tuple[Memory, ...]:
    """The memories of the buffers of a tensor with an encoding."""
    wanted = desc.buffers
    if buffers is None:
        return tuple(Memory(own, engine) for own in wanted)
    if not isinstance(buffers, list | tuple) or len(buffers) != len(wanted):
        kinds = ", ".join(f"{own.data_type} {own.dims}" for own in wanted)
        rule = f"expected a list of the {len(wanted)} buffers of {desc}: {kinds}"
        raise InvalidArguments("buffer", type(buffers).__name__, rule)
    parts: list[Memory] = []
    for own, buffer in zip(wanted, buffers, strict=True):
        part = buffer if isinstance(buffer, Memory) else Memory(own, engine, buffer)
        if part.desc != own or part.engine != engine:
            rule = f"expected {own} of dims {own.dims} on {engine!r}"
            raise InvalidArguments(f"buffer[{len(parts)}]", f"{part!r}", rule)
        parts.append(part)
    return tuple(parts)


def _check_desc(desc: MemoryDesc) -> None:
    if not isinstance(desc, MemoryDesc):
        rule = "expected a MemoryDesc"
        raise InvalidArguments("desc", desc, rule, "Memory.from_numpy takes an array")
    if desc.format_kind is FormatKind.any:
        rule = "a memory needs a layout, and 'any' leaves it open"
        hint = "take the descriptor that the primitive description chose"
        raise InvalidArguments("desc", str(desc), rule, hint)
    if isinstance(desc.encoding, Packed) and not desc.encoding.columns:
        rule = "this asks a primitive to decide how weights are packed"
        hint = "take the descriptor that the primitive description chose"
        raise InvalidArguments("desc", str(desc), rule, hint)
    if desc.has_runtime_values:
        rule = "a memory needs dims and strides that are known"
        hint = "describe it with the sizes of this execution"
        raise InvalidArguments("desc", str(desc), rule, hint)


def _checked_buffer(engine: Engine, buffer: object) -> Buffer:
    """A buffer of an engine with memory of its own."""
    if not isinstance(buffer, Buffer):
        rule = f"{engine!r} cannot use memory of the host"
        raise InvalidArguments("buffer", type(buffer).__name__, rule, "from_numpy copies")
    if buffer.data is not None or buffer.offset < 0:
        rule = f"expected a handle of {engine!r} and an offset in bytes, without data for the host"
        raise InvalidArguments("buffer", f"Buffer at offset {buffer.offset}", rule)
    return buffer


def _desc_of(array: np.ndarray, data_type: DataType) -> MemoryDesc:
    """The descriptor of an array as it is stored."""
    if array.flags.c_contiguous:
        return MemoryDesc(array.shape, data_type)
    step = array.itemsize
    strides = []
    for stride, size in zip(array.strides, array.shape, strict=True):
        valid = stride >= 0 and stride % step == 0
        if size > 1 and not valid:
            rule = "strides must be nonnegative multiples of the size of an element"
            hint = "pass a copy of it, or a tag"
            raise InvalidArguments("array.strides", array.strides, rule, hint)
        strides.append(stride // step if valid else 0)
    return MemoryDesc(array.shape, data_type, strides)
