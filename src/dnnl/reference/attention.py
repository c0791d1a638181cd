"""Attention: softmax(scale * query key^T + mask) value for each head, and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.reference.fill import generator, uniform
from dnnl.reference.rule import Rule, core_eps
from dnnl.reference.specification import Description, Specification, Values, inputs
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType


def _shares(
    query: Array, key: Array, mask: ArrayLike | None, masking: str, scale: float
) -> tuple[Array, Array]:
    """The weights of the values, and the logarithm of what they were divided by; weights are 0, and
    the logarithm -inf, in rows in which no key takes part."""
    scores = scale * (query @ np.swapaxes(key, -1, -2))
    if mask is not None:
        scores = scores + f64(mask)
    rows, keys = scores.shape[-2:]
    if masking != "none":
        seen = np.tri(rows, keys, keys - rows if masking == "causal_last" else 0, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    peak = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(peak == -np.inf, 0.0, peak)
    exponentials = np.exp(scores - peak)
    total = np.sum(exponentials, axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logarithm = np.log(total) + peak
    return exponentials / np.where(total == 0.0, 1.0, total), logarithm[..., 0]


@dataclass(frozen=True)
class Attention:
    """The results of an attention: ``dst``, and the logarithm of the sum of each row."""

    dst: Array
    logsum: Array


@np.errstate(invalid="ignore")
def attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    masking: str = "none",
    scale: float = 1.0,
    masked_rows: str = "zero",
) -> Attention:
    """softmax(scale * query key^T + mask) value.

    query is [N, H, L, E], key [N, G, S, E] and value [N, G, S, V], of which each head serves H / G
    heads in a row. ``masking`` is "none", "causal", where row l takes the first l + 1 keys, or
    "causal_last", where it takes S - L more. Rows without a key are 0, or NaN if ``masked_rows`` is
    "nan" and there are keys.
    """
    rows, keys, values = f64(query), *_repeated(query, key, value)
    shares, logarithm = _shares(rows, keys, mask, masking, scale)
    if masked_rows == "nan" and keys.shape[-2]:
        shares = np.where(logarithm[..., np.newaxis] == -np.inf, np.nan, shares)
    return Attention(shares @ values, logarithm)


@np.errstate(invalid="ignore")
def attention_backward(
    diff_dst: ArrayLike,
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    masking: str = "none",
    scale: float = 1.0,
) -> tuple[Array, Array, Array]:
    """The gradients by query, key and value."""
    rows, keys, values = f64(query), *_repeated(query, key, value)
    shares, _ = _shares(rows, keys, mask, masking, scale)
    gradient = f64(diff_dst)
    weights = gradient @ np.swapaxes(values, -1, -2)
    scores = scale * shares * (weights - np.sum(weights * shares, axis=-1, keepdims=True))
    diff_key = np.swapaxes(scores, -1, -2) @ rows
    diff_value = np.swapaxes(shares, -1, -2) @ gradient
    heads = np.shape(key)[1]
    return scores @ keys, _added(diff_key, heads), _added(diff_value, heads)


def _repeated(query: ArrayLike, *served: ArrayLike) -> list[Array]:
    """Keys and values, each head as often as it serves."""
    heads = np.shape(query)[1]
    return [np.repeat(f64(own), heads // max(1, np.shape(own)[1]), axis=1) for own in served]


def _added(gradient: Array, heads: int) -> Array:
    """The sums over the heads that one serves."""
    batch, every, *rest = gradient.shape
    result: Array = gradient.reshape(batch, heads, every // max(1, heads), *rest).sum(axis=2)
    return result


def _given(values: Values) -> tuple[Array, Array, Array, Array | None]:
    """The sources of a case."""
    mask = values.get(int(Arg.SRC_3))
    return values[Arg.SRC_0], values[Arg.SRC_1], values[Arg.SRC_2], mask


_GRADIENTS = int(Arg.DIFF_SRC_0), int(Arg.DIFF_SRC_1), int(Arg.DIFF_SRC_2)


class _Attention(Specification):
    """Scores of a few units, so that several keys share each row, and values of one size."""

    def fill(self, desc: Description) -> dict[int, Array]:
        """Numbers in [-1, 1]; the mask takes some keys out of all rows but keeps the first. What
        the forward pass leaves is computed."""
        found = {}
        for argument, tensor in inputs(desc):
            rng = generator("attention", argument, tensor.dims)
            found[argument] = uniform(rng, tensor.dims, 1.0)
            if argument == Arg.SRC_3:
                out = rng.random(tensor.dims) < 1 / 4
                out[..., :1] = False
                found[argument] = np.where(out, -np.inf, found[argument])
            found[argument] = f64(found[argument].astype(tensor.data_type.numpy))
        if not desc.propagation.is_forward:
            result = self._forward(desc, found)
            found[int(Arg.DST)] = result.dst
            found[int(Arg.DST_1)] = result.logsum
        return found

    def compute(self, desc: Description, values: Values) -> dict[int, Array]:
        """The result, and in training the logarithms of sums; or three gradients."""
        if not desc.propagation.is_forward:
            gradients = attention_backward(
                values[Arg.DIFF_DST], *_given(values), masking=desc.masking, scale=desc.scale
            )
            return dict(zip(_GRADIENTS, gradients, strict=True))
        result = self._forward(desc, values)
        return {Arg.DST: result.dst, Arg.DST_1: result.logsum}

    def _forward(self, desc: Description, values: Values) -> Attention:
        options = {"masking": desc.masking, "scale": desc.scale, "masked_rows": desc.masked_rows}
        return attention(*_given(values), **options)

    def rule(
        self, desc: Description, argument: int, values: Values, post_ops: Sequence[object] = ()
    ) -> Rule:
        """The epsilons of two sums in a row, relative to values; sums of narrow floats round the
        shares as well."""
        kind = desc.desc_of(argument).data_type
        keys, depth = desc.key_desc.dims[2:]
        kinds = [tensor.desc.data_type for tensor in desc.tensors if tensor.argument != Arg.SRC_3]
        narrow = any(own is not DataType.f32 for own in kinds)
        steps = 16 + depth**0.5 + keys**0.5
        forward = desc.propagation.is_forward
        slack = steps * core_eps(kind) * (1 / 4 if forward else 1 / 2)
        if narrow:
            slack += max(own.eps for own in kinds) * (1 / 2 if forward else 3)
        if not forward and argument != Arg.DIFF_SRC_0:
            slack *= max(1, desc.query_desc.dims[2]) ** 0.5
        return Rule(kind.eps + steps * core_eps(kind), zeros=100.0, slack=slack,
                    non_finite=True)  # fmt: skip


SPECIFICATION = _Attention()
