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
    factor = None if scale is None else float(scale)
    return w.add("Attention", *sources, is_causal=int(is_causal), scale=factor), None


def _attention_of_any_rank(
    w: Writer,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> str:
    """As `_attention`, with one axis less too."""
    if not all(own.rank == q.rank and own.rank in (3, 4) for own in (q, k, v)):
        raise Unimplemented(f"sources of {q.rank}, {k.rank} and {v.rank} axes")
    if q.rank == 4:
        return _attention(w, q, k, v, dropout_p, is_causal, attn_mask, scale)[0]
    q, k, v = (Value(w.unsqueeze(own, [0]), own.dtype, (1, *own.shape)) for own in (q, k, v))
    return w.squeeze(_attention(w, q, k, v, dropout_p, is_causal, attn_mask, scale)[0], [0])


TABLE: Mapping[str, Translate] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "scaled_dot_product_attention": _attention_of_any_rank,
}
