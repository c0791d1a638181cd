"""Attention and its module beside PyTorch's own: results, gradients, tracing, refusals."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import dnnl.torch.modules  # which defines all operators
from dnnl.errors import InvalidArguments, Unimplemented
from tests.torch.differentiating import check_gradients, traces

SIZES = ((2, 3, 7, 19), (2, 3, 9, 19), (2, 3, 9, 5))
TOLERANCES = ((torch.bfloat16, 3e-2), (torch.float16, 4e-3), (torch.float64, 1e-9))


pytestmark = pytest.mark.usefixtures("with_gradients")


def both(**params: Any) -> tuple[Any, Any]:
    """The library's function and PyTorch's, with some arguments."""
    pair = dnnl.torch.attention, scaled_dot_product_attention
    first, second = (partial(each, **params) for each in pair)
    return first, second


def drawn(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape) for shape in shapes]


def three() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    query, key, value = drawn(*SIZES)
    return query, key, value


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.usefixtures("threads")
def test_attention() -> None:
    check_gradients(*both(), *drawn(*SIZES))
    check_gradients(*both(is_causal=True, scale=0.3), *drawn(*SIZES))
    check_gradients(*both(), *drawn((7, 19), (9, 19), (9, 5)))
    heads_behind = [
        own.transpose(1, 2) for own in drawn((2, 7, 3, 16), (2, 9, 3, 16), (2, 9, 3, 5))
    ]
    check_gradients(*both(), *heads_behind)
    columns = [own.mT for own in drawn((2, 3, 19, 7), (2, 3, 19, 9), (2, 3, 5, 9))]
    check_gradients(*both(), *columns)
    check_gradients(*both(), *(own[..., ::2] for own in drawn(*SIZES)))
    for dtype, tolerance in TOLERANCES:
        given = drawn((2, 3, 17, 19), (2, 3, 33, 19), (2, 3, 33, 16))
        check_gradients(*both(), *(own.to(dtype) for own in given), tolerance=tolerance)


def test_results_are_laid_out_as_queries() -> None:
    query, key = (own.transpose(1, 2) for own in drawn((2, 7, 3, 16), (2, 9, 3, 16)))
    result = dnnl.torch.attention(query, key, key)
    assert result.transpose(1, 2).is_contiguous()
    assert dnnl.torch.attention(*three()).is_contiguous()


@pytest.mark.usefixtures("threads")
def test_masks() -> None:
    for shape in ((7, 9), (2, 1, 7, 9), (3, 1, 9), (2, 3, 7, 9)):
        (mask,) = drawn(shape)
        check_gradients(*both(), *drawn(*SIZES), mask)
        check_gradients(*both(attn_mask=mask), *drawn(*SIZES))
    none = torch.randn(2, 1, 7, 9) > 0
    none[0, 0, 2] = False  # a row that no key takes part in
    check_gradients(*both(attn_mask=none), *drawn(*SIZES))
    small = [own.bfloat16() for own in drawn(*SIZES)]
    check_gradients(*both(attn_mask=torch.randn(7, 9).bfloat16()), *small, tolerance=3e-2)


def test_leading_dimensions_are_broadcast() -> None:
    given = drawn((2, 3, 7, 19), (1, 9, 19), (3, 9, 5))
    check_gradients(*both(), *given)
    check_gradients(*both(), *drawn((1, 3, 7, 19), (2, 1, 9, 19), (9, 5)))
    one_for_all = drawn((2, 3, 7, 19), (2, 1, 9, 19), (1, 9, 5))
    check_gradients(*both(is_causal=True), *one_for_all)
    five = drawn((2, 2, 3, 7, 19), (2, 1, 3, 9, 19), (1, 3, 9, 5))
    for mask in drawn((7, 9), (2, 1, 7, 9), (2, 1, 1, 1, 9)):
        check_gradients(*both(attn_mask=mask), *five)
    grouped = drawn((2, 6, 7, 19), (2, 3, 9, 19), (2, 3, 9, 5))
    check_gradients(*both(enable_gqa=True), *grouped)
    for shape in ((7, 9), (6, 7, 9), (2, 1, 7, 9)):
        (mask,) = drawn(shape)
        check_gradients(*both(enable_gqa=True), *grouped, mask)
        check_gradients(*both(enable_gqa=True, attn_mask=mask), *grouped)
    wide = [own.bfloat16() for own in grouped]
    check_gradients(*both(enable_gqa=True), *wide, tolerance=3e-2)


def test_sizes_of_0() -> None:
    for query, key, value in (
        ((2, 3, 0, 19), (2, 3, 9, 19), (2, 3, 9, 5)),
        ((2, 3, 7, 19), (2, 3, 0, 19), (2, 3, 0, 5)),
        ((2, 3, 7, 0), (2, 3, 9, 0), (2, 3, 9, 5)),
        ((2, 3, 7, 4), (2, 3, 9, 4), (2, 3, 9, 0)),
        ((0, 3, 7, 4), (0, 3, 9, 4), (0, 3, 9, 5)),
    ):
        check_gradients(*both(), *drawn(query, key, value))
    nothing = [own.requires_grad_() for own in drawn((0, 3, 7, 4), (0, 3, 9, 4), (0, 3, 9, 5))]
    mask = torch.randn(7, 9, requires_grad=True)
    torch.autograd.backward(dnnl.torch.attention(nothing[0], nothing[1], nothing[2], mask).sum())
    assert mask.grad is not None
    assert not mask.grad.any()


def test_gradients_in_f64() -> None:
    given = doubles(2, 3, 4, 5), doubles(2, 1, 6, 5), doubles(1, 3, 6, 2), doubles(4, 6)
    assert gradcheck(dnnl.torch.attention, given)


def test_dropout_draws_what_eager_draws() -> None:
    def seeded(function: Any) -> Callable[..., torch.Tensor]:
        def call(*given: torch.Tensor) -> torch.Tensor:
            torch.manual_seed(3)
            with sdpa_kernel(SDPBackend.MATH):
                found: torch.Tensor = function(*given, dropout_p=0.4)
            return found

        return call

    own, expected = both()
    check_gradients(seeded(own), seeded(expected), *drawn(*SIZES))
    own, expected = both(enable_gqa=True)
    check_gradients(seeded(own), seeded(expected), *drawn((2, 6, 7, 9), (2, 3, 9, 9), (2, 3, 9, 5)))


def test_the_operator_follows_the_rules_of_pytorch() -> None:
    own, check = torch.ops.dnnl.attention.default, torch.library.opcheck
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    check(own, (x, x, x, None, "causal", 0.3))
    heads = x.detach().transpose(1, 2).requires_grad_()
    check(own, (heads, heads, heads, torch.randn(1, 1, 3, 3), "none", 0.3))
    weighted = torch.ops.dnnl.weighted_attention.default
    check(weighted, (x, x, x, None, None, 0.3))
    mask = torch.randn(3, 3, requires_grad=True)
    check(weighted, (heads, heads, heads, mask, torch.ones(2, 4, 3, 3), 0.3))


def test_attention_traces() -> None:
    traces(partial(dnnl.torch.attention, is_causal=True), *drawn(*SIZES))
    grouped = drawn((2, 6, 7, 19), (2, 3, 9, 19), (2, 3, 9, 5))
    traces(partial(dnnl.torch.attention, enable_gqa=True), *grouped)


def test_second_derivatives_are_refused() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    result = dnnl.torch.attention(x, x, x).sum()
    (gradient,) = torch.autograd.grad(result, x, create_graph=True)
    with pytest.raises(Unimplemented, match="second derivative of attention"):
        torch.autograd.backward(gradient.sum())


def test_bad_arguments_are_refused() -> None:
    own: Any = dnnl.torch.attention
    query, key, value = drawn(*SIZES)
    grouped = partial(own, enable_gqa=True)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: own(3, key, value), "query"),
        (lambda: own(query[0, 0, 0], key, value), "query"),
        (lambda: own(query, key.double(), value), "key"),
        (lambda: own(query, key[..., :3], value), "key"),
        (lambda: own(query, key[:, :2], value), "key"),
        (lambda: own(query, key, value[:, :, :3]), "value"),
        (lambda: own(query, key, value[:, :2]), "value"),
        (lambda: own(query, key, value, torch.ones(7, 8)), "attn_mask"),
        (lambda: own(query, key, value, torch.ones(1, 1, 1, 7, 9)), "attn_mask"),
        (lambda: own(query, key, value, torch.ones(7, 9, dtype=torch.int32)), "attn_mask"),
        (lambda: own(query, key, value, torch.ones(7, 9), True), "is_causal"),
        (lambda: own(query, key, value, is_causal="yes"), "is_causal"),
        (lambda: own(query, key, value, scale="1"), "scale"),
        (lambda: own(query, key, value, dropout_p=1.5), "dropout_p"),
        (lambda: grouped(query[0, 0], key[0, 0], value[0, 0]), "query"),
        (lambda: grouped(query, key[:, :2], value[:, :2]), "key"),
        (lambda: grouped(query, key, value[:, :1]), "value"),
        (lambda: grouped(query, key, value, torch.ones(2, 7, 9)), "attn_mask"),
    ]
    for call, argument in cases:
        with pytest.raises(InvalidArguments) as found:
            call()
        assert found.value.argument == argument


MODULES: tuple[tuple[dict[str, Any], tuple[tuple[int, ...], ...], dict[str, Any]], ...] = (
    ({}, ((5, 2, 12),), {}),
    ({"batch_first": True}, ((2, 5, 12),), {"need_weights": False}),
    ({"bias": False}, ((5, 12),), {}),
    ({"batch_first": True}, ((5, 12),), {"attn_mask": torch.ones(3, 5, 5).tril()}),
    ({"kdim": 7, "vdim": 9}, ((5, 2, 12), (6, 2, 7), (6, 2, 9)), {}),
    ({}, ((5, 2, 12), (6, 2, 12), (6, 2, 12)), {"attn_mask": torch.ones(6, 5, 6).tril()}),
    (
        {"add_bias_kv": True, "add_zero_attn": True},
        ((5, 2, 12), (6, 2, 12), (6, 2, 12)),
        {
            "average_attn_weights": False,
            "key_padding_mask": torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 1, 0, 0, 0]]).bool(),
            "attn_mask": torch.ones(5, 6).triu(4).bool(),
        },
    ),
    ({"add_bias_kv": True}, ((5, 12), (6, 12), (6, 12)), {"key_padding_mask": torch.ones(6)}),
    ({}, ((5, 2, 12),), {"is_causal": True, "attn_mask": torch.ones(5, 5).triu(1).bool()}),
    (
        {},
        ((5, 2, 12),),
        {"is_causal": True, "need_weights": False, "attn_mask": torch.ones(5, 5).triu(1).bool()},
    ),
)


def flat(found: tuple[torch.Tensor, torch.Tensor | None]) -> torch.Tensor:
    """The result and the weights, where there are any, in one tensor."""
    result, weights = found
    return result.flatten() if weights is None else torch.cat([result.flatten(), weights.flatten()])


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("options", "shapes", "params"), MODULES)
def test_a_module(
    options: dict[str, Any], shapes: tuple[tuple[int, ...], ...], params: dict[str, Any]
) -> None:
    expected = nn.MultiheadAttention(12, 3, **options)
    with torch.no_grad():
        for own in expected.parameters():
            own.copy_(torch.randn_like(own) / 3)
    exchanged = dnnl.torch.replace(deepcopy(expected))
    assert type(exchanged) is dnnl.torch.MultiheadAttention
    tensors = drawn(*shapes)

    def called(net: Any) -> Any:
        return lambda *given: flat(net(*(given * 3)[:3], **params))

    check_gradients(called(exchanged), called(expected), *tensors)
    pair = [[own.grad for own in net.parameters()] for net in (exchanged, expected)]
    torch.testing.assert_close(*pair, rtol=1e-4, atol=4e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [*TOLERANCES[:1], *TOLERANCES[2:]])
def test_types_of_modules(dtype: torch.dtype, tolerance: float) -> None:
    expected = nn.MultiheadAttention(16, 4).to(dtype)
    own = dnnl.torch.replace(deepcopy(expected))
    pair = (lambda x: own(x, x, x)[0]), (lambda x: expected(x, x, x)[0])
    check_gradients(*pair, torch.randn(5, 2, 16).to(dtype), tolerance=tolerance)


def test_dropout_of_a_module() -> None:
    expected = nn.MultiheadAttention(12, 3, dropout=0.4)
    x, results = torch.randn(5, 2, 12), []
    for net in (dnnl.torch.replace(deepcopy(expected)), expected):
        torch.manual_seed(3)
        results.append(flat(net(x, x, x)))
        results.append(flat(net.eval()(x, x, x)))
    torch.testing.assert_close(results[:2], results[2:])
    assert not torch.equal(*results[:2])


def test_an_encoder_trains_as_with_pytorch() -> None:
    expected = nn.TransformerEncoderLayer(12, 3, 20, dropout=0.0, batch_first=True)
    own = dnnl.torch.replace(deepcopy(expected))
    check_gradients(own, expected, torch.randn(2, 5, 12))


def test_a_module_traces_and_is_exported() -> None:
    net = dnnl.torch.MultiheadAttention(12, 3, batch_first=True)
    for weights in (False, True):
        traces(lambda x, w=weights: net(x, x, x, need_weights=w)[0], torch.randn(2, 5, 12))
    dims = [{1: torch.export.Dim("rows", min=2, max=64)}] + [{1: torch.export.Dim("keys")}] * 2
    given = torch.randn(2, 5, 12), *(torch.randn(2, 6, 12),) * 2
    other = torch.randn(2, 9, 12), *(torch.randn(2, 8, 12),) * 2
    for named, operator in (({}, "weighted_attention"), ({"need_weights": False}, "attention")):
        shapes = dict(zip(("query", "key", "value"), dims, strict=True)) | dict.fromkeys(named)
        program = torch.export.export(net, given, named, dynamic_shapes=shapes)
        targets = [str(node.target) for node in program.graph.nodes]
        assert f"dnnl.{operator}.default" in targets
        torch.testing.assert_close(program.module()(*other, **named), net(*other, **named))


def test_bad_sources_of_a_module_are_refused() -> None:
    net: Any = dnnl.torch.MultiheadAttention(12, 3)
    x = torch.randn(5, 2, 12)
    mask = torch.zeros(5, 5)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: net(3, x, x), "query"),
        (lambda: net(x[None], x[None], x[None]), "query"),
        (lambda: net(x, x[0], x), "key"),
        (lambda: net(x, x, x[..., :3]), "value"),
        (lambda: net(x, x[:, :1], x), "key"),
        (lambda: net(x, x, x, attn_mask=mask[:3]), "attn_mask"),
        (lambda: net(x, x, x, attn_mask=mask.int()), "attn_mask"),
        (lambda: net(x, x, x, key_padding_mask=mask), "key_padding_mask"),
        (lambda: net(x, x, x, is_causal=True), "is_causal"),
    ]
    for call, argument in cases:
        with pytest.raises(InvalidArguments) as found:
            call()
        assert found.value.argument == argument
