"""What one row of a data set must be for the inputs of a model, and what it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import ml_dtypes
import numpy as np

from dnnl.errors import InvalidArguments
from dnnl.framework import Model
from dnnl.graph.graph import UNRANKED, Array, Shape


@dataclass(frozen=True, slots=True)
class RowType:
    """An input without its first axis: ``shape`` has a name where the model leaves a size open."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]

    @property
    def is_known(self) -> bool:
        """Whether the model determines every size."""
        return all(isinstance(size, int) for size in self.shape)

    @property
    def sizes(self) -> Shape:
        """The sizes, where all are known."""
        return tuple(size for size in self.shape if isinstance(size, int))

    def why_no_type(self, dtype: np.dtype) -> str:
        """Why elements of this type are not taken; empty where they are."""
        if np.can_cast(dtype, self.dtype, "same_kind"):
            return ""
        return f"is {dtype}, and the model's input is {self}"

    def why_no_shape(self, shape: Shape) -> str:
        """Why a row of this shape is not taken; empty where it is.

        A row of as many elements as the model's is taken in row-major order, as lists of Parquet
        have no further axes.
        """
        if self.is_known and prod(shape) == prod(self.sizes):
            return ""
        if len(shape) == len(self.shape) and all(
            isinstance(size, str) or size == given
            for size, given in zip(self.shape, shape, strict=True)
        ):
            return ""
        return f"has rows of shape {list(shape)}, and the model's input is {self}"

    def shaped(self, rows: Array) -> Array:
        """Rows of a shape that is taken, in the model's."""
        return rows.reshape(len(rows), *self.sizes) if self.is_known else rows

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} [batch{''.join(f', {n}' for n in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs of a model that computes each row by itself; ``fixed_batch`` is the only number of
    rows that it takes at a time, None where any will do."""

    inputs: tuple[RowType, ...]
    fixed_batch: int | None

    @property
    def names(self) -> tuple[str, ...]:
        """Those of the inputs."""
        return tuple(row.name for row in self.inputs)

    @classmethod
    def of(cls, model: Model) -> Signature:
        """That of a model.

        Raises InvalidArguments where an input has no first axis, or inputs disagree about it.
        """
        rows, batches = [], dict[str, int | str]()
        for name, kind in model.inputs.items():
            if not kind.shape or kind.shape == UNRANKED:
                rule = f"{kind} has no first axis for the rows of a batch"
                raise InvalidArguments("MODEL", name, rule)
            batches[name] = kind.shape[0]
            rows.append(RowType(name, np.dtype(kind.dtype), tuple(kind.shape[1:])))
        if not rows:
            raise InvalidArguments("MODEL", "", "has no inputs, so that there is nothing to score")
        fixed = {size for size in batches.values() if isinstance(size, int)}
        if len(fixed) > 1 or (fixed and len(set(batches.values())) > 1):
            rule = "the inputs must have one first size, for the rows of a batch"
            raise InvalidArguments("MODEL", batches, rule)
        return cls(tuple(rows), fixed.pop() if fixed else None)

    def batch(self, asked: int | None, default: int) -> int:
        """The rows of a batch, of which ``asked`` is what the command line says.

        Raises InvalidArguments where the model takes another number.
        """
        if self.fixed_batch is None:
            return default if asked is None else asked
        if asked not in (None, self.fixed_batch):
            rule = f"the model takes {self.fixed_batch} rows at a time"
            raise InvalidArguments("--batch", asked, rule, f"--batch {self.fixed_batch}")
        return self.fixed_batch


def converted(rows: Array, dtype: np.dtype) -> tuple[Array, dict[int, str]]:
    """Rows in another type of the same kind, and why some of them have no values in it.

    Floats are rounded. A row is refused for an integer, or for a finite float, out of range.
    """
    if rows.dtype == dtype:
        return rows, {}
    with np.errstate(over="ignore"):
        result = rows.astype(dtype)
    if rows.dtype.kind in "iu" and dtype.kind not in "fc" and dtype != np.bool_ and rows.size:
        bounds = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        wrong = (rows < int(bounds.min)) | (rows > int(bounds.max))
    elif rows.dtype.kind == "f" and rows.dtype.itemsize > dtype.itemsize:
        wrong = np.isfinite(rows) & ~np.isfinite(result.astype(np.float64))
    else:
        return result, {}
    bad = dict[int, str]()
    for index in np.flatnonzero(wrong.reshape(len(rows), -1).any(axis=1)):
        value = rows[index][wrong[index]].flat[0]
        bad[int(index)] = f"{value} is out of the range of {dtype}"
    return result, bad
