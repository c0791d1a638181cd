"""Calls with gradients that pass by AOTAutograd's wrapper: autograd sees what eager has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from dnnl.torch.backend import compile_graph
from dnnl.torch.differentiated import Trained
from tests.torch.compiling import compare

pytestmark = [
    pytest.mark.usefixtures("with_gradients"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

Function = Callable[..., Any]


def of_backend(function: Function, *arguments: Any, **options: Any) -> tuple[Function, Any]:
    """A function that has been compiled and called, forward and backward, and what the backend
    has made of it."""
    found = []

    def backend(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.append(compile_graph(module, inputs))
        return found[-1]

    compiled = torch.compile(function, backend=backend, fullgraph=True, **options)
    for _ in range(2):
        results = compiled(*arguments)
        every = results if isinstance(results, tuple) else (results,)
        torch.autograd.backward([x.sum() for x in every if x.requires_grad])
    for own in arguments:
        own.grad = None
    return compiled, found[-1]


def differentiated(function: Function, *arguments: Any, **options: Any) -> Function:
    """The same, which passes by the wrapper."""
    compiled, made = of_backend(function, *arguments, **options)
    assert isinstance(made, Trained)
    assert made.is_derived
    return compiled


def several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x * y).sigmoid() + x).tanh() * y


def wanting(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def gradients(function: Function, *arguments: torch.Tensor) -> list[torch.Tensor]:
    own = [x.detach().clone().requires_grad_(x.requires_grad) for x in arguments]
    result = function(*own)
    result.backward(torch.ones_like(result))
    return [result.detach(), *(x.grad for x in own if x.grad is not None)]


def agree(function: Function, *arguments: torch.Tensor, **options: Any) -> None:
    compiled = differentiated(function, *arguments, **options)
    compare(gradients(compiled, *arguments), gradients(function, *arguments))


def test_which_graphs_pass_by() -> None:
    x, y = wanting(3, 4), wanting(3, 4)
    agree(several, x, y)
    agree(several, x, torch.randn(3, 4))
    agree(lambda x, y: torch.special.i1(x) * y, x, y)
    assert not isinstance(of_backend(lambda x: (x.exp(), x.t()), x)[1], Trained)

    def changing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return x * y

    assert not isinstance(of_backend(changing, x, torch.randn(3, 4))[1], Trained)


def test_results_that_are_saved_are_no_copies() -> None:
    x = wanting(50)
    compiled = differentiated(torch.tanh, x)
    y = compiled(x)
    assert y.grad_fn.saved_tensors[0].data_ptr() == y.data_ptr()
    compare(gradients(compiled, x), gradients(torch.tanh, x))


def test_equal_results_have_memory_of_their_own() -> None:
    x = wanting(5)
    one, other = differentiated(lambda x: (x.exp(), x.exp()), x)(x)
    with torch.no_grad():
        one.zero_()
    compare(other, x.exp())


def test_gradients_accumulate() -> None:
    x, y = wanting(4), wanting(4)
    compiled = differentiated(lambda x, y: x + y, x, y)
    for times in (1, 2, 3):
        compiled(x, y).sum().backward()
        compare(x.grad, torch.full((4,), float(times)))
    assert x.grad is not None
    assert y.grad is not None
    x.grad.zero_()
    compare(y.grad, torch.full((4,), 3.0))


def test_gradients_of_any_strides() -> None:
    x = wanting(4, 6)
    compiled = differentiated(lambda x: x.exp() * 2, x)
    for share in (torch.ones(1).expand(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]):
        (found,) = torch.autograd.grad(compiled(x), x, share)
        compare(found, (x.exp() * 2 * share).detach())


def test_views_of_arguments() -> None:
    base = wanting(6, 8)
    compiled = differentiated(lambda x: (x * x).relu(), wanting(8, 3))
    for _ in range(2):
        base.grad = None
        torch.autograd.backward(compiled(base[::2].t()).sum())
        compare(base.grad, torch.where(torch.arange(6)[:, None] % 2 == 0, 2 * base, 0.0).detach())


def test_some_results_have_no_gradients() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.exp(), x > 0, x.argmax(), x.sin() * 2

    x = wanting(7)
    compiled = differentiated(function, x)
    found, expected = compiled(x), function(x)
    compare(found, expected)
    assert [y.requires_grad for y in found] == [y.requires_grad for y in expected]
    (own,) = torch.autograd.grad(found[3].sum(), x)
    compare(own, (2 * x.cos()).detach())


def test_no_gradient_goes_where_none_is() -> None:
    """An argument whose gradient the graph leaves out: its history may be over."""
    x, leaf = wanting(3), wanting(3)
    y = leaf * 2
    torch.autograd.backward(y.sum())  # which frees what y is computed from
    compiled, made = of_backend(lambda x, y: x * y.detach(), x, leaf * 2)
    assert isinstance(made, Trained)
    assert not made.is_derived
    compiled(x, y).sum().backward()
    compare(x.grad, y.detach())


def test_a_changed_argument_is_seen() -> None:
    x, y = wanting(3), torch.randn(3)
    compiled = differentiated(lambda x, y: x * y, x, y)
    z = compiled(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_a_changed_result_is_seen() -> None:
    x = wanting(3)
    z = differentiated(torch.tanh, x)(x)
    z.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_twice_through_one_graph() -> None:
    x, y = wanting(3), wanting(3)
    z = differentiated(several, x, y)(x, y).sum()
    z.backward(retain_graph=True)
    assert x.grad is not None
    first = x.grad.clone()
    z.backward()
    compare(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        z.backward()


def test_twice_through_a_graph_that_pytorch_calls() -> None:
    """The first backward pass does not say that later ones end their graphs."""
    x, y = wanting(3), torch.randn(3)

    def changing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        y.add_(1)
        return (x * x).tanh()

    compiled, made = of_backend(changing, x, y)
    assert not isinstance(made, Trained)
    z = compiled(x, y).sum()
    z.backward(retain_graph=True)
    z.backward()
    compare(x.grad, 2 * gradients(changing, x, y)[1])


def test_double_backward_is_refused() -> None:
    x, y = wanting(3), wanting(3)
    z = differentiated(several, x, y)(x, y)
    (found,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    assert found.requires_grad
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.backward(found.sum())


def test_hooks() -> None:
    x, y = wanting(3), wanting(3)
    compiled = differentiated(several, x, y)
    packed, seen = list[torch.Tensor](), list[torch.Tensor]()

    def pack(own: torch.Tensor) -> torch.Tensor:
        packed.append(own)
        return own.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda own: own):
        z = compiled(x, y)
    assert packed
    z.register_hook(lambda own: own * 3)
    z.grad_fn.register_hook(lambda inside, _: seen.extend(inside))
    z.sum().backward()
    compare(x.grad, 3 * gradients(several, x, y)[1])
    compare(seen[0], x.grad)
    assert z.grad_fn.name() == "CompiledFunctionBackward"


def test_without_gradients_at_the_time_of_a_call() -> None:
    x, y = wanting(3), wanting(3)
    compiled = differentiated(several, x, y)
    with torch.no_grad():
        z = compiled(x, y)
    assert not z.requires_grad
    compare(z, several(x, y).detach())
    assert compiled(x, y).requires_grad


def test_autocast() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))

    def function(x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.special.i0e(net(x).float())  # PyTorch's, as a part
        return found

    x = wanting(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        compiled, made = of_backend(function, x)
        assert isinstance(made, Trained)
        assert made.is_derived
        found, expected = gradients(compiled, x), gradients(function, x)
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_deterministic_algorithms_are_refused_as_before() -> None:
    x, y = wanting(3), wanting(3)
    z = differentiated(several, x, y)(x, y)
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
            z.sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_open_sizes() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).tanh().sum(0) * x.shape[0]

    compiled = differentiated(function, wanting(3, 5), wanting(5, 6), dynamic=True)
    for rows, inner in ((3, 5), (4, 9), (4, 9), (4, 9), (11, 2)):
        x, y = wanting(rows, inner), wanting(inner, 6)
        compare(gradients(compiled, x, y), gradients(function, x, y))


def test_results_of_open_sizes_are_marked() -> None:
    compiled = differentiated(lambda x: x.exp() * 2, wanting(9), dynamic=True)
    plain = torch.compile(lambda x: x.exp() * 2, backend="aot_eager", dynamic=True)
    marks = [own(wanting(9))._dynamo_propagated_dynamic_indices for own in (compiled, plain)]
    assert marks == [{0}, {0}]


def test_a_backward_pass_within_another_compiled_function() -> None:
    x, y = wanting(3), wanting(3)
    compiled = differentiated(several, x, y)

    @torch.compile(backend="eager")
    def step(x: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        z = x * 2
        torch._dynamo.graph_break()
        torch.autograd.backward(loss)
        return z + 1

    for _ in range(2):
        step(x.detach(), compiled(x, y).sum())
    compare(x.grad, 2 * gradients(several, x, y)[1])


def test_several_threads() -> None:
    x, y = torch.randn(8, 1000), torch.randn(8, 1000)
    compiled = differentiated(several, wanting(1000), wanting(1000))

    def run(place: int) -> bool:
        own = x[place], y[place].clone().requires_grad_()
        expected = gradients(several, *own)
        every = [gradients(compiled, *own) for _ in range(30)]
        return all(
            torch.allclose(a, b, atol=1e-5)
            for found in every
            for a, b in zip(found, expected, strict=True)
        )

    differentiated(several, torch.randn(1000), wanting(1000))
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))
