"""Products of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats


def _product(w: Writer, a: Value, b: Value) -> str:
    require_floats(a, b)
    return w.add("MatMul", a, b)


def _product_and_sum(w: Writer, bias: Value, a: Value, b: Value, beta: Any, alpha: Any) -> str:
    """beta * bias + alpha * (a @ b), of matrices; a ``beta`` of 0 hides NaN in ``bias``."""
    require_floats(bias, a, b)
    if a.rank == b.rank == 2 and beta != 0:
        return w.add("Gemm", a, b, bias, alpha=float(alpha), beta=float(beta))
    product = w.add("MatMul", a, b)
    if alpha != 1:
        product = w.add("Mul", product, w.scalar(alpha, w.dtype))
    if beta == 0:
        return product
    term = bias.name if beta == 1 else w.add("Mul", bias, w.scalar(beta, w.dtype))
    return w.add("Add", product, term)


def _linear(w: Writer, x: Value, weight: Value, bias: Value | None) -> str:
    require_floats(x, weight)
    if weight.rank != 2:
        raise Unimplemented(f"a weight of {weight.rank} axes")
    product = w.add("MatMul", x, w.transpose(weight, (1, 0)))
    return product if bias is None else w.add("Add", product, bias)


TABLE: Mapping[str, Translate] = {
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), _product),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), _product_and_sum),
    "linear": _linear,
}
