"""The types of results: NumPy's rules, and PyTorch's where its tensors are given."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.runtime import teams
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_BYTES = (DataType.s8, DataType.u8)
_BYTE = 8
_TYPES = 64  # of arrays, that are remembered


class Rules:
    """Those of NumPy 2."""

    def common_type(self, names: Sequence[str], descs: Sequence[MemoryDesc]) -> DataType:
        """The type of what is computed of tensors, which errors call ``names``."""
        first, *others = {desc.data_type for desc in descs}
        if not others:
            return first
        try:
            return self._joined(descs)
        except (TypeError, InvalidArguments):
            given = [str(desc.data_type) for desc in descs]
            rule = f"no type holds both this and {' and '.join(given[:-1])}"
            hint = "convert one of them"
            raise InvalidArguments(names[len(given) - 1], given[-1], rule, hint) from None

    def _joined(self, descs: Sequence[MemoryDesc]) -> DataType:
        kinds = {desc.data_type for desc in descs}
        if kinds == {DataType.f16, DataType.bf16}:
            return DataType.f32
        return DataType.from_numpy(np.result_type(*(kind.numpy for kind in kinds)))

    def real(self, kind: DataType) -> DataType:
        """The float that elementary functions make of a type."""
        if kind.is_float:
            return kind
        return DataType.from_numpy(np.result_type(kind.numpy, np.float16))

    def quotient(self, kind: DataType) -> DataType:
        """The type of quotients."""
        return kind if kind.is_float else DataType.f64

    def mean(self, kind: DataType) -> DataType:
        """The type of means."""
        return self.quotient(kind)

    def total(self, kind: DataType) -> DataType:
        """The type of sums and products of many elements."""
        if kind.is_float:
            return kind
        unsigned = kind.min == 0 and kind is not DataType.boolean
        return DataType.u64 if unsigned else DataType.s64

    def number(self, value: object, kind: DataType) -> DataType:
        """The type of a Python number combined with an array of ``kind``."""
        if _rank_of_number(value) <= _rank(kind):
            return kind
        return self.quotient(kind) if isinstance(value, float) else DataType.s64


class _OfTorch(Rules):
    """Those of PyTorch: tensors without dimensions count less, integers become f32."""

    def _joined(self, descs: Sequence[MemoryDesc]) -> DataType:
        groups = (
            [desc.data_type for desc in descs if desc.ndims],
            [desc.data_type for desc in descs if not desc.ndims],
        )
        first, *others = (_of_torch(kinds) for kinds in groups if kinds)
        higher = [kind for kind in others if _rank(kind) > _rank(first)]
        return _of_torch([first, *higher])

    def real(self, kind: DataType) -> DataType:
        return kind if kind.is_float else DataType.f32

    def quotient(self, kind: DataType) -> DataType:
        return self.real(kind)

    def mean(self, kind: DataType) -> DataType:
        if not kind.is_float:
            raise InvalidArguments("x", str(kind), "the mean of integers needs dtype", "try 'f32'")
        return kind

    def total(self, kind: DataType) -> DataType:
        return kind if kind.is_float else DataType.s64


NUMPY, TORCH = Rules(), _OfTorch()


def rules_of(*sources: object) -> Rules:
    """The rules of the library that an array comes from, the first that is one."""
    for source in sources:
        if type(source) is np.ndarray:
            return NUMPY
        if is_tensor(type(source)):
            return TORCH
        if not is_loose(source):
            return TORCH if type(source).__module__.partition(".")[0] == "torch" else NUMPY
    return NUMPY


def _is_tensor(kind: type) -> bool:
    torch = sys.modules.get("torch")
    if torch is None or kind not in (torch.Tensor, torch.nn.Parameter):
        return False
    teams.use_threads_of(torch)
    return True


is_tensor: Callable[[type], bool] = lru_cache(_TYPES)(_is_tensor)
"""Whether a type is PyTorch's own of tensors, or of parameters."""


def is_loose(source: object) -> bool:
    """Whether it is of no array library: a number of Python or NumPy, or a sequence."""
    return is_number(source) or isinstance(source, list | tuple | np.generic)


def is_number(source: object) -> bool:
    """Whether it is a Python number, whose type yields to that of arrays."""
    return type(source) in (float, int, bool)


def as_type(desc: MemoryDesc, kind: DataType) -> MemoryDesc:
    """What `call` converts an array to: row-major, of another type."""
    return desc if desc.data_type is kind else MemoryDesc(desc.dims, kind)


def as_real(desc: MemoryDesc, kind: DataType) -> MemoryDesc:
    """The source of a computation in a float: floats and bytes are read as they are."""
    direct = desc.data_type.is_float or desc.data_type in _BYTES
    return desc if direct else as_type(desc, kind)


def widened(kind: DataType, dst: MemoryDesc | None) -> DataType:
    """The type of a result, or that of ``dst`` where it holds all of them."""
    if dst is not None and np.can_cast(kind.numpy, dst.data_type.numpy, "safe"):
        return dst.data_type
    return kind


def target(dst: MemoryDesc | None, shape: Sequence[int], kind: DataType) -> MemoryDesc:
    """``dst`` if it is of that type; or else a row-major tensor that is, which `call` converts."""
    return dst if dst is not None and dst.data_type is kind else MemoryDesc(shape, kind)


def of_floats(src: MemoryDesc, dst: MemoryDesc | None, name: str = "x") -> MemoryDesc:
    """The source of a function that integers have not: it takes them where ``out`` is a float."""
    if src.data_type.is_float:
        return src
    if dst is None or not dst.data_type.is_float:
        hint = "convert it to a float, or pass an out that is one"
        raise InvalidArguments(name, str(src.data_type), "this function takes floats", hint)
    return as_type(src, dst.data_type)


def read_type(dtype: object) -> DataType | None:
    """A data type, its name, or one of NumPy's or PyTorch's; None as it is."""
    if dtype is None:
        return None
    name = str(dtype)
    if name in DataType.__members__:
        found = DataType[name]
    else:
        try:
            found = DataType.from_numpy(name[6:] if name.startswith("torch.") else dtype)
        except (ValueError, SyntaxError):  # NumPy's, of what looks like a structure
            raise InvalidArguments("dtype", dtype, "expected a data type", "try 'f32'") from None
    if found.bits < _BYTE or found is DataType.e8m0:
        raise InvalidArguments("dtype", str(found), "nothing is computed in it", "try 'f32'")
    return found


def _rank(kind: DataType) -> int:
    return 2 if kind.is_float else int(kind is not DataType.boolean)


def _rank_of_number(value: object) -> int:
    return (bool, int, float).index(type(value))


def _of_torch(kinds: Sequence[DataType]) -> DataType:
    """The type that a set of types has in common."""
    rank = max(map(_rank, kinds))
    same = {kind for kind in kinds if _rank(kind) == rank}
    if rank < 2:
        found = DataType.from_numpy(np.result_type(*(kind.numpy for kind in same)))
        if found.is_float:
            raise TypeError("64 bits with and without a sign")
        return found
    widest = [kind for kind in same if kind.bits == max(each.bits for each in same)]
    if len(widest) == 1:
        return widest[0]
    if widest[0].bits < 16:
        raise TypeError("floats of 8 bits")
    return DataType.f32
