"""The types and shapes of rows that a model takes, and their conversion."""

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
    """An input without its batch axis; ``shape`` has names for open sizes."""

    name: str
    dtype: np.dtype
    shape: tuple[int | str, ...]

    @property
    def is_known(self) -> bool:
        """Whether the model fixes every size."""
        return all(isinstance(size, int) for size in self.shape)

    @property
    def sizes(self) -> Shape:
        """The shape, if all sizes are fixed."""
        return tuple(size for size in self.shape if isinstance(size, int))

    def why_no_type(self, dtype: np.dtype) -> str:
        """Why elements of this type are refused; an empty text if they are not."""
        if np.can_cast(dtype, self.dtype, "same_kind"):
            return ""
        return f"is {dtype}, and the model's input is {self}"

    def why_no_shape(self, shape: Shape) -> str:
        """Why a row of this shape is refused; an empty text if it is not.

        A flat row with the right number of elements is accepted in row-major order, for lists of
        Parquet.
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
        """Rows of an accepted shape, reshaped to the model's."""
        return rows.reshape(len(rows), *self.sizes) if self.is_known else rows

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} [batch{''.join(f', {n}' for n in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs of a model with a batch axis; ``fixed_batch`` is its size, None if it is open."""

    inputs: tuple[RowType, ...]
    fixed_batch: int | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(row.name for row in self.inputs)

    @classmethod
    def of(cls, model: Model) -> Signature:
        """The signature of a model.

        Raises InvalidArguments if an input has no first axis, or inputs disagree about its size.
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
        """The batch size: ``asked`` of the command line, that of the model, or ``default``.

        Raises InvalidArguments if the model fixes another number.
        """
        if self.fixed_batch is None:
            return default if asked is None else asked
        if asked not in (None, self.fixed_batch):
            rule = f"the model takes {self.fixed_batch} rows at a time"
            raise InvalidArguments("--batch", asked, rule, f"--batch {self.fixed_batch}")
        return self.fixed_batch


def converted(rows: Array, dtype: np.dtype) -> tuple[Array, dict[int, str]]:
    """Rows converted to another type of the same kind, and the reasons of bad rows by index.

    Floats are rounded. An integer or a finite float out of range makes a row bad.
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
