"""Attention of several heads as a module, with PyTorch's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import torch
from torch import nn
from torch.nn import functional

from dnnl.errors import InvalidArguments
from dnnl.torch.functions.attention import attended
from dnnl.torch.functions.checks import FLOATS, check_shape, check_source
from dnnl.torch.functions.products import linear


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` by `dnnl.torch.linear` and `dnnl.torch.attention`.

    Rows that no key takes part in give 0, with ``need_weights`` as well, where PyTorch gives NaN.
    """

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The result, of the shape of ``query``, and the weights [N, L, S], or of each head, or
        None.

        ``query`` is [L, N, E], ``key`` and ``value`` are [S, N, ...]; [N, L, E] and [N, S, ...]
        with ``batch_first``; or all are without a batch. Masks are True where a key takes no part,
        or floats that are added: [N, S] for keys, [L, S] or [N heads, L, S] for products.
        ``is_causal`` says that ``attn_mask`` is the causal one. Raises InvalidArguments where types
        or sizes do not agree.
        """
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            rule = "is a hint of what attn_mask has"
            raise InvalidArguments("is_causal", True, rule, "pass attn_mask as well")
        rows, *sources = (self._heads(own) for own in self._projected(query, key, value))
        causal = is_causal and key_padding_mask is None and not need_weights
        shape = *rows.shape[:-1], sources[0].shape[-2]
        mask = self._mask(shape, key_padding_mask, None if causal else attn_mask)
        more = self._more(rows)
        if more:
            pairs = zip(sources, more, strict=True)
            sources = [torch.cat([own, *others], -2) for own, others in pairs]
            mask = None if mask is None else functional.pad(mask, (0, len(more[0])))
        dropout = self.dropout if self.training else 0.0
        result, weights = attended(
            rows, sources[0], sources[1], mask, causal, dropout_p=dropout, need_weights=need_weights
        )
        joined = self._rows(result).flatten(-2)
        if weights is not None and average_attn_weights:
            weights = weights.mean(-3)
        return linear(joined, self.out_proj.weight, self.out_proj.bias), weights

    def _check(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        count, batch = check_source("query", query).dim(), 0 if self.batch_first else 1
        sizes = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        for (name, size), own in zip(sizes.items(), (query, key, value), strict=True):
            if check_source(name, own).dim() != count or count not in (2, 3):
                rule = "expected 3 dimensions, or 2 of all without a batch"
                raise InvalidArguments(name, tuple(own.shape), rule)
            if own.shape[-1] != size:
                raise InvalidArguments(name, tuple(own.shape), f"expected rows of {size}")
            if count == 3 and own.shape[batch] != query.shape[batch]:
                rule = f"expected a batch of {query.shape[batch]}, as query has"
                raise InvalidArguments(name, tuple(own.shape), rule)

    def _projected(self, *sources: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values; of one source they are one product."""
        joined: torch.Tensor | None = self.in_proj_bias
        biases = (None,) * 3 if joined is None else joined.chunk(3)
        weights: tuple[torch.Tensor, ...] = (
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
        )
        if self._qkv_same_embed_dim:
            first, second, third = sources
            if first is second and second is third:
                return linear(first, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            weights = self.in_proj_weight.chunk(3)
        return tuple(map(linear, sources, weights, biases))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """[N, heads, L, E / heads] of rows, or [heads, L, E / heads] without a batch."""
        split = x.reshape(*x.shape[:-1], self.num_heads, self.head_dim)
        return split.transpose(-3, -2) if self._batch_first(x.dim()) else split.permute(1, 2, 0, 3)

    def _rows(self, heads: torch.Tensor) -> torch.Tensor:
        """The reverse of `_heads`, with the heads behind the rows."""
        first = self._batch_first(heads.dim() - 1)
        return heads.transpose(-3, -2) if first else heads.permute(2, 0, 1, 3)

    def _batch_first(self, ndims: int) -> bool:
        return ndims == 2 or self.batch_first

    def _mask(
        self, shape: Sequence[int], padding: torch.Tensor | None, own: torch.Tensor | None
    ) -> torch.Tensor | None:
        """What is added to products of a shape, [N, heads, L, S] or [heads, L, S]."""
        *batch, heads, rows, keys = shape
        found = []
        if padding is not None:
            _check_mask("key_padding_mask", padding, (*batch, keys))
            found.append(_added(padding).reshape(*batch, 1, 1, keys))
        if own is not None:
            if own.dim() == 2:
                _check_mask("attn_mask", own, (rows, keys))
            else:
                _check_mask("attn_mask", own, (prod(batch) * heads, rows, keys))
                own = own.reshape(*shape)
            found.append(_added(own))
        return sum(found[1:], found[0]) if found else None

    def _more(self, like: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]] | None:
        """Further keys and values, of each head one: the module's own, and zeros."""
        sizes = *like.shape[:-2], 1, self.head_dim
        keys, values = [], []
        if self.bias_k is not None and self.bias_v is not None:
            split = self.num_heads, 1, self.head_dim
            keys.append(self.bias_k.reshape(split).expand(sizes))
            values.append(self.bias_v.reshape(split).expand(sizes))
        if self.add_zero_attn:
            zeros = like.new_zeros(sizes)
            keys.append(zeros)
            values.append(zeros)
        return (keys, values) if keys else None


def _check_mask(name: str, mask: torch.Tensor, shape: Sequence[int]) -> None:
    check_source(name, mask, (torch.bool, *FLOATS))
    check_shape(name, mask, shape)


def _added(mask: torch.Tensor) -> torch.Tensor:
    """A mask as floats: -inf where it is True."""
    if mask.dtype is torch.bool:
        return torch.zeros_like(mask, dtype=torch.float32).masked_fill(mask, -inf)
    return mask if mask.dtype is torch.float64 else mask.float()
