"""What the parameters of operations may be: how they are read from users, and how verbose lines
spell them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, SupportsIndex, TypeVar

import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.types.cell_functions import CellFunctions
from dnnl.types.dtype import DataType
from dnnl.types.expression import Function
from dnnl.types.kinds import Alg, Kind, NormFlags, RnnFlags, coerce, float_text
from dnnl.types.layout_input import read_float, read_int, read_integers, read_sequence
from dnnl.types.scalar import traced

T = TypeVar("T")

_TOO_FAR = 2**31  # products with extents must fit 64 bits


class Domain(ABC, Generic[T]):
    """The values of one parameter."""

    @abstractmethod
    def read(self, name: str, value: object, ndims: int) -> T:
        """The value as a description stores it; raises InvalidArguments in the name of ``name``.

        ``ndims`` is the number of dimensions of the operation's first tensor.
        """

    def spell(self, value: T) -> str:
        """The value in verbose lines."""
        return str(value)


@dataclass(frozen=True)
class Algorithm(Domain[Alg]):
    """An algorithm whose name begins with ``prefix``."""

    prefix: str

    def read(self, name: str, value: object, ndims: int) -> Alg:
        alg = coerce(Alg, value, name)
        if not alg.name.startswith(self.prefix):
            known = ", ".join(known for known in Alg.__members__ if known.startswith(self.prefix))
            raise InvalidArguments(name, str(alg), f"expected one of {known}")
        return alg


@dataclass(frozen=True)
class Member(Domain[Kind | None]):
    """A member of an enumeration, one of those ``known`` where they are given; none where it is
    ``optional``."""

    kind: type[Kind]
    known: tuple[Kind, ...] = ()
    optional: bool = False

    def read(self, name: str, value: object, ndims: int) -> Kind | None:
        if value is None and self.optional:
            return None
        member = coerce(self.kind, value, name)
        if self.known and member not in self.known:
            rule = f"expected one of {', '.join(map(str, self.known))}"
            raise InvalidArguments(name, str(member), rule)
        return member

    def spell(self, value: Kind | None) -> str:
        return "undef" if value is None else str(value)


@dataclass(frozen=True)
class Traced(Domain[Function | None]):
    """A Python function of one traced scalar, or none."""

    def read(self, name: str, value: object, ndims: int) -> Function | None:
        if value is None:
            return None
        function = value if isinstance(value, Function) else traced(value, 1)
        if function.expression.parameters != 1:
            rule = f"expected a function of 1 value, not of {function.expression.parameters}"
            raise InvalidArguments("fn", str(function), rule)
        return function


@dataclass(frozen=True)
class Cells(Domain[tuple[CellFunctions, ...] | None]):
    """The functions of recurrent cells, a record for each direction, or None for the usual ones."""

    def read(self, name: str, value: object, ndims: int) -> tuple[CellFunctions, ...] | None:
        if value is None:
            return None
        rule = "expected a dnnl.CellFunctions for each direction"
        given = read_sequence(name, value, rule)
        known = tuple(own for own in given if isinstance(own, CellFunctions))
        if len(known) != len(given):
            raise InvalidArguments(name, value, rule)
        return known

    def spell(self, value: tuple[CellFunctions, ...] | None) -> str:
        return "+".join(map(str, value or ()))


@dataclass(frozen=True)
class Name(Domain[str]):
    """One of the names ``known``."""

    known: tuple[str, ...]

    def read(self, name: str, value: object, ndims: int) -> str:
        if not isinstance(value, str) or value not in self.known:
            rule = f"expected one of {', '.join(self.known)}"
            raise InvalidArguments(name, value, rule)
        return value


@dataclass(frozen=True)
class Letters(Domain[str]):
    """Letters in an order, each at most once."""

    def read(self, name: str, value: object, ndims: int) -> str:
        if not isinstance(value, str) or len(set(value)) < len(value):
            raise InvalidArguments(name, value, "expected a string in which no letter is repeated")
        return value


@dataclass(frozen=True)
class Exact(Domain[str | Function]):
    """One of the names ``known``, or a traced function."""

    known: tuple[str, ...]

    def read(self, name: str, value: object, ndims: int) -> str | Function:
        return value if isinstance(value, Function) else Name(self.known).read(name, value, ndims)

    def spell(self, value: str | Function) -> str:
        return f"function:{value}" if isinstance(value, Function) else value


Flag = TypeVar("Flag", NormFlags, RnnFlags)


@dataclass(frozen=True)
class Flags(Domain[Flag]):
    """Flags out of ``known``, of an operation that messages call a ``noun``."""

    known: Flag
    noun: str = "normalization"

    def read(self, name: str, value: object, ndims: int) -> Flag:
        if isinstance(value, str) and value and set(value) <= set(self.known.letters):
            names = [flag.name for flag in self.known if flag.letters in value]
            rule = "expected the names of flags, joined by '|'"
            raise InvalidArguments(
                name, value, rule, f"for {value!r} {'|'.join(map(str, names))!r}"
            )
        flags = coerce(type(self.known), value, name)
        if flags & ~self.known:
            raise InvalidArguments(name, str(flags), f"this {self.noun} knows {self.known}")
        return flags

    def spell(self, value: Flag) -> str:
        return value.letters


@dataclass(frozen=True)
class Type(Domain[DataType]):
    """A data type out of ``known``."""

    known: tuple[DataType, ...]

    def read(self, name: str, value: object, ndims: int) -> DataType:
        data_type = coerce(DataType, value, name)
        if data_type not in self.known:
            rule = f"expected one of {', '.join(map(str, self.known))}"
            raise InvalidArguments(name, str(data_type), rule)
        return data_type


@dataclass(frozen=True)
class AxisDomain(Domain[int]):
    """One of the dimensions, starting at 0."""

    def read(self, name: str, value: object, ndims: int) -> int:
        if not ndims:
            raise InvalidArguments(name, value, "the tensor has no dimensions, so it has no axis")
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < ndims:
            hint = ""
            if isinstance(value, int) and -ndims <= value < 0:
                hint = f"from the end it is axis {value + ndims}"
            raise InvalidArguments(name, value, f"expected one of 0..{ndims - 1}", hint)
        return value


@dataclass(frozen=True)
class Real(Domain[float]):
    """A finite number, of at least ``low`` where that is given; ``hint`` is one that serves."""

    low: float | None = None
    hint: str = ""

    def read(self, name: str, value: object, ndims: int) -> float:
        number = read_float(name, value)
        if self.low is not None and not number >= self.low:
            rule = "must not be negative" if not self.low else f"must be at least {self.low:g}"
            raise InvalidArguments(name, number, rule, self.hint)
        return number

    def spell(self, value: float) -> str:
        return float_text(value)


@dataclass(frozen=True)
class Whole(Domain[int]):
    """An integer of at least ``low``."""

    low: int

    def read(self, name: str, value: object, ndims: int) -> int:
        if isinstance(value, bool):
            raise InvalidArguments(name, value, "expected an integer")
        number = read_int(name, value)
        if not self.low <= number < _TOO_FAR:
            raise InvalidArguments(name, number, f"must be {self.low} or more, below {_TOO_FAR}")
        return number


@dataclass(frozen=True)
class Reals(Domain[tuple[float, ...]]):
    """A sequence of numbers."""

    def read(self, name: str, value: object, ndims: int) -> tuple[float, ...]:
        numbers = read_sequence(name, value, "expected a sequence of numbers")
        return tuple(read_float(name, number) for number in numbers)

    def spell(self, value: tuple[float, ...]) -> str:
        return ":".join(map(float_text, value))


Numbers = int | Sequence[int]
"""What `Spatial` reads."""


@dataclass(frozen=True)
class Spatial(Domain[tuple[int, ...]]):
    """One integer, of at least ``low`` where that is given, for each spatial dimension; a single
    one is that of all."""

    low: int | None = None

    def read(self, name: str, value: object, ndims: int) -> tuple[int, ...]:
        count = ndims - 2
        several = isinstance(value, tuple | list | bool | np.ndarray)
        if not several and isinstance(value, SupportsIndex):
            numbers = (value.__index__(),) * count
        else:
            numbers = read_integers(name, value)
        if len(numbers) != count:
            rule = f"expected one number for each of {count} spatial dimensions"
            raise InvalidArguments(name, numbers, rule)
        if self.low is not None and any(number < self.low for number in numbers):
            raise InvalidArguments(name, numbers, f"must be at least {self.low}")
        if any(abs(number) >= _TOO_FAR for number in numbers):
            raise InvalidArguments(name, numbers, f"must be less than {_TOO_FAR}")
        return numbers
