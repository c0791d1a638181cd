"""Attention as one operator."""

from __future__ import annotations

from collections.abc import Mapping

from dnnl.errors import Unimplemented
from dnnl.torch.aten.writer import Translate, Value, Writer, require_floats


def _attention(
    w: Writer,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float,
    is_causal: bool,
    attn_mask: Value | None,
    scale: float | None,
) -> tuple[str, None]:
    """Four axes: images, heads, positions, elements; the logarithms of sums are for gradients."""
    require_floats(q, k, v)
    if dropout_p:
        raise Unimplemented("dropout, whose numbers are PyTorch's")
    sources = [q, k, v] if attn_mask is None else [q, k, v, attn_mask]
    attrs = {"is_causal": int(is_causal), "scale": None if scale is None else float(scale)}
    return w.add("Attention", *sources, **attrs), None


TABLE: Mapping[str, Translate] = {"_scaled_dot_product_flash_attention_for_cpu": _attention}
