"""The sums that compensate zero points and shifted bytes, and where they are stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments
from dnnl.kernels.product.compensation.columns import ColumnSums
from dnnl.kernels.product.compensation.rows import RowSums
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.runtime.image import Phase


@dataclass(frozen=True)
class Compensation:
    """``rows`` are sums of src, by which zero points of weights are multiplied. ``columns`` are
    those of weights, by which zero points of src are multiplied, if no tile computes them. Where
    they differ between rows, ``places`` has what is to be subtracted from each result instead.
    """

    rows: RowSums | None = None
    columns: ColumnSums | None = None
    places: Argument | None = None

    def emit(self, module: Module, name: str, arguments: Arguments) -> Iterator[Phase]:
        """Write the phases that compute the sums; ``name`` is that of the product in the module."""
        if self.rows is not None:
            yield from self.rows.emit(module, name, arguments)
        if self.columns is not None:
            yield self.columns.emit(module, name, arguments)
