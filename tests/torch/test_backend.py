"""The backend of torch.compile beside eager PyTorch."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dnnl
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.aten.writer import Value, Writer
from dnnl.torch.backend import compile_graph
from tests.torch.compiling import Net, check, compare, compiled

ROOT = Path(__file__).parents[2]


def test_the_entry_point_names_the_backend() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = "torch_dynamo_backends"
    given = project["entry-points"][group]
    assert EntryPoint("dnnl", given["dnnl"], group).load() is compile_graph


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_network(dtype: torch.dtype) -> None:
    net, x = Net().eval().to(dtype), torch.randn(2, 3, 13, 17, dtype=dtype)
    actual, expected = compiled(net)(x), net(x)
    limit = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(actual, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 13, 17)
    with torch.autocast("cpu", dtype):
        actual, expected = compiled(net)(x), net(x)
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


LAYOUTS = {
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(2, 3),
    "with gaps": lambda x: x[:, :, ::2, 1:],
    "overlapping": lambda x: x[:, :1].expand(2, 3, 12, 10),
    "overlapping windows": lambda x: x.as_strided((2, 3, 8, 10), (360, 120, 5, 1)),
    "reversed": lambda x: x.flip(3).transpose(0, 1)[:3, :2].transpose(0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layout: str) -> None:
    x = LAYOUTS[layout](torch.randn(2, 3, 12, 10))
    check(nn.Conv2d(3, 4, 3).eval(), x)
    check(lambda x: (x * 2).tanh(), x)


def test_channels_last_is_kept_without_a_copy(plans: list[Any]) -> None:
    net = nn.Sequential(nn.Conv2d(16, 16, 3), nn.ReLU()).eval()
    x = torch.randn(1, 16, 9, 9).to(memory_format=torch.channels_last)
    function = compiled(net)
    result = function(x)
    assert result.is_contiguous(memory_format=torch.channels_last)
    compare(result, net(x))
    (graph,) = plans
    assert [kind.shape for kind in graph.inputs.values()] == [(1, 9, 9, 16)]


def test_strides_of_axes_of_one_element() -> None:
    """Which may be any: PyTorch's own operators choose layouts by them."""
    for shape in ((2, 3, 1, 1), (2, 1, 5, 1), (1, 3, 4, 4)):
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        for function in (
            lambda x: (x * 2, x.mul(3).permute(2, 0, 3, 1), x.sum(1, True)),
            lambda x: (x.topk(1, 1)[0] * 2, x.sort(1)[0].mul(2)),  # partly PyTorch's
        ):
            check(function, x, dynamic=False)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1)])
def test_empty_and_small_tensors(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    check(lambda x: (x + 1).exp() * 2, x)
    check(lambda x: (x * 2).sum(), x)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.float64]
)
def test_other_types(dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 2], [3, 1, 0]]).to(dtype)
    check(lambda x: (x + x, x == 1, x.float() * 0.5, torch.where(x > 1, x, x + 1)), x)


def test_numbers_and_tensors_of_one_number() -> None:
    check(lambda x, n: x * n + 1, torch.randn(3, 4), 2.5)
    check(lambda x, n: x * n + 1, torch.randn(3, 4), torch.tensor(3))
    check(lambda x: (x + 1, x.shape[0], None), torch.randn(3, 4))


def test_mutation_views_and_aliases() -> None:
    def change(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        view = x[1:]
        view.mul_(2)
        return x.exp(), view, x.t()

    x = torch.randn(3, 4)
    function = compiled(change)
    ours, theirs = x.clone(), x.clone()
    actual, expected = function(ours), change(theirs)
    compare(actual, expected)
    compare(ours, theirs)
    assert actual[1].data_ptr() == ours[1:].data_ptr()
    actual[1].zero_()  # an alias of the argument, as in eager
    assert not ours[1:].any()


def test_outputs_are_new_in_each_call() -> None:
    function = compiled(lambda x: (x.relu(), torch.ones(3) + 1))
    x = torch.randn(3)
    first = function(x)
    copies = [own.clone() for own in first]
    function(-x)
    compare(list(first), copies)
    first[1].zero_()
    assert function(x)[1].eq(2).all()


def test_operators_that_are_left_to_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.special.bessel_j0((x @ x).relu())
        return found.tanh() @ x

    with caplog.at_level(logging.INFO, "dnnl.torch"):
        check(net, torch.randn(5, 5))
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "aten.special_bessel_j0.default x 1" in line] == lines


def test_what_is_refused_when_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The rest of the region stays the library's."""

    def wrong(w: Writer, x: Value) -> str:
        return w.add("And", x, x)

    monkeypatch.setitem(TRANSLATIONS, torch.ops.aten.cosh.default, wrong)

    def net(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).cosh() @ x

    with caplog.at_level(logging.INFO, "dnnl.torch"):
        check(net, torch.randn(3, 3))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("aten.cosh.default x 1: computed by PyTorch: node 'cosh'")
    torch._dynamo.reset()
    found = dnnl.explain_graph(net, torch.randn(3, 3))
    assert [own.where for own in found.decisions] == ["dnnl", "torch", "dnnl"]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_resampling(mode: str, plans: list[Any]) -> None:
    net = nn.Upsample((7, 12), mode=mode)
    check(net, torch.randn(2, 3, 5, 6))
    (graph,) = plans
    assert [node.op for node in graph.nodes] == ["ResizeByRule"]


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resampling_of_open_sizes(mode: str) -> None:
    net = nn.Upsample(scale_factor=2, mode=mode)
    function = compiled(lambda x: net(x) + 1, dynamic=True)
    for size in (5, 8):
        x = torch.randn(2, 3, size, size + 1)
        compare(function(x), net(x) + 1)


def test_tensors_that_a_graph_contains() -> None:
    check(lambda x: x @ torch.tensor([[1.0, 2.0], [3.0, 4.0]]) + torch.eye(2), torch.randn(2, 2))


def test_several_threads() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    function = compiled(net)
    function(x)

    def run(seed: int) -> None:
        own = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            for _ in range(10):
                compare(function(own), net(own))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_random_numbers_are_pytorchs() -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x @ x, 0.5, training=True)

    x = torch.randn(4, 4)
    function = compiled(net)
    torch.manual_seed(3)
    first = function(x)
    torch.manual_seed(3)
    compare(function(x), first)


def test_errors_of_users_are_eagers() -> None:
    weight = torch.randn(4, 3)
    function = compiled(lambda i, w: torch.nn.functional.embedding(i, w) * 2)
    compare(function(torch.tensor([1, 3]), weight), weight[[1, 3]] * 2)
    with pytest.raises(IndexError, match="out of range"):
        function(torch.tensor([1, 4]), weight)
    compare(function(torch.tensor([0, 3]), weight), weight[[0, 3]] * 2)


INDEXED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "embedding": lambda x, index: torch.nn.functional.embedding(index[:, 0], x),
    "index_select": lambda x, index: x.index_select(0, index[:, 0]),
    "gather": lambda x, index: x.gather(0, index),
    "index_add": lambda x, index: x.t().index_add(1, index[:, 0], x.t()[:, 1:], alpha=0.5),
    "index_copy": lambda x, index: x.index_copy(0, index[:, 0], x[1:] * 2),
    "scatter": lambda x, index: x.scatter(0, index, 1.0),
    "scatter_add": lambda x, index: x.scatter_add(0, index, x),
    "scatter_reduce": lambda x, index: x.scatter_reduce(0, index, x, "amax"),
}


@pytest.mark.parametrize("name", INDEXED)
def test_negative_indices_are_refused_where_eager_refuses_them(name: str) -> None:
    function = compiled(INDEXED[name])
    x, index = torch.randn(4, 3), torch.tensor([[1], [3], [0]])
    compare(function(x, index), INDEXED[name](x, index))
    for number in (-1, 4, -(2**63)):
        wrong = torch.tensor([[1], [number], [0]])
        with pytest.raises((IndexError, RuntimeError)) as expected:
            INDEXED[name](x, wrong)
        with pytest.raises(expected.type, match=re.escape(str(expected.value))):
            function(x, wrong)


def test_slices_of_another_shape_are_refused_as_eager_does() -> None:
    def net(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x.index_add(0, index, torch.ones(2, 1))

    with pytest.raises(RuntimeError, match="source tensor shape must match self"):
        compiled(net)(torch.randn(4, 3), torch.tensor([0, 1]))


def test_negative_indices_count_from_the_end_where_eager_has_them_do_so() -> None:
    check(lambda x, index: x[index] * 2, torch.randn(4, 3), torch.tensor([-1, 2]))
    check(lambda x, a, b: x[a, b] * 2, torch.randn(4, 3), torch.tensor([-4]), torch.tensor([-1]))


MASKS = {
    "none": (None, False),
    "causal": (None, True),
    "truth values": (torch.arange(7) != torch.arange(5)[:, None], False),
    "nothing to attend to": (torch.arange(7) < torch.arange(5)[:, None], False),
    "numbers": (torch.linspace(-3, 3, 35).view(5, 7), False),
    "of each image": (torch.linspace(-3, 3, 70).view(2, 1, 5, 7), False),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", [4, 2])
def test_attention(mask: str, heads: int) -> None:
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, heads, 7, 8), torch.randn(2, heads, 7, 8)
    given, causal = MASKS[mask]

    def net(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, given, is_causal=causal, scale=0.3, enable_gqa=heads != 4
        )

    check(net, q, k, v)


def test_inference_mode() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    function = compiled(net)
    with torch.inference_mode():
        for _ in range(2):
            compare(function(x), net(x))
        weight = torch.randn(3, 4)  # its changes are not counted
        linear = compiled(lambda x, w: x @ w)
        for _ in range(2):
            weight.add_(1)
            compare(linear(torch.ones(2, 3), weight), torch.ones(2, 3) @ weight)


def test_what_a_graph_is_left_with() -> None:
    """A graph that only moves data, and one without a tensor as its result."""
    check(lambda x: x.t()[1:], torch.randn(3, 4))
    check(lambda x: x.shape[0] + 1, torch.randn(3, 4))


def test_explain_names_what_is_left() -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.special.bessel_j0(x @ x)
        return found + 1

    found = dnnl.explain_graph(net, torch.randn(4, 4))
    wheres = {own.operator: own.where for own in found.decisions}
    assert wheres == {
        "aten.mm.default": "dnnl",
        "aten.special_bessel_j0.default": "torch",
        "aten.add.Tensor": "dnnl",
    }
    assert found.graphs == 1
    text = "by PyTorch: aten.special_bessel_j0.default x 1: the operator"
    assert text in str(found)
    assert str(found).startswith("2 of 3 operators by dnnl, graphs: 1")


def test_explain_names_views_that_nothing_else_needs() -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.special.bessel_j0(x.t())
        return found + 1

    (view, function, sum_) = dnnl.explain_graph(net, torch.randn(4, 4)).decisions
    assert (view.where, view.reason) == ("torch", "nothing around it is computed by dnnl")
    assert (function.where, sum_.where) == ("torch", "dnnl")


def test_explain_names_graph_breaks() -> None:
    def net(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    found = dnnl.explain_graph(net, torch.randn(4))
    assert found.graphs == 2
    assert len(found.breaks) == 1


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_nearest_of_two_pixels_that_are_as_near(padding: str, corners: bool) -> None:
    size = 9 if corners else 8  # places of halves are exact
    image = torch.randn(1, 2, size, size)
    places = torch.arange(-12, 24) + 0.5
    x = places * 2 / 8 - 1 if corners else (places * 2 + 1) / 8 - 1
    grid = torch.stack(torch.meshgrid(x, x, indexing="ij"), -1)[None]
    sample = partial(nn.functional.grid_sample, mode="nearest", padding_mode=padding)
    check(partial(sample, align_corners=corners), image, grid)


@pytest.mark.parametrize("order", [0.0, 0.5, 1.0, 2.0, torch.inf, -torch.inf])
def test_a_norm_of_one_number(order: float) -> None:
    for number in (-8.5, 0.0):
        check(lambda x: torch.linalg.vector_norm(x, order), torch.tensor(number))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("dtype", "divisor"), [(torch.float32, 41), (torch.float64, 49)])
def test_a_quotient_that_becomes_an_integer(dtype: torch.dtype, divisor: int) -> None:
    def several(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = x / divisor
        return first.long(), first.view(-1, 7).t().relu().int(), first == 7, first >= 7

    def joined(x: torch.Tensor) -> torch.Tensor:
        return ((1 - x) / divisor * torch.ones(3, 1, dtype=dtype)).int()

    x = torch.arange(7 * 500).to(dtype)
    check(several, x)
    check(joined, x)
    check(lambda start: torch.linspace(start, 1, 50, dtype=torch.int64), torch.tensor(50))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_that_becomes_an_integer(dtype: torch.dtype) -> None:
    bases, exponents = torch.arange(1, 20).to(dtype), torch.arange(6).to(dtype)

    def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x[:, None] ** y).int(), (10**y).int(), (x**3).int()

    check(several, bases, exponents)
