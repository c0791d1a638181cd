"""Modules and exported programs as models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

import dnnl
import dnnl.torch
from dnnl.torch.modules import replace
from tests.torch.compiling import Called, Net, attention
from tests.torch.test_modules import CASES

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The tensor attributes .*_flat_weights:UserWarning"),
]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def compare(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected.detach(), rtol=1e-4, atol=1e-5)


def compare_all(actual: Any, expected: Any) -> None:
    """Compare all results of a model, which are by name where there are several."""
    ours = actual.values() if isinstance(actual, Mapping) else [actual]
    theirs = [own for own in tree_leaves(expected) if own is not None]
    for own, other in zip(ours, theirs, strict=True):
        compare(own, other)


def test_a_module() -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    model = dnnl.from_torch(net, x)
    assert list(model.inputs) == ["x"]
    assert str(model.inputs["x"]) == "float32 [2, 3, 8, 8]"
    compare(model(x), net(x))
    assert isinstance(model(x.numpy()), np.ndarray)


def test_an_exported_program() -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, n: int) -> dict[str, torch.Tensor]:
            return {"sum": a + b, "parts": torch.cat([a, b]) * n}

    a, b = torch.randn(2, 3), torch.randn(2, 3)
    model = dnnl.from_torch(torch.export.export(Two(), (a, b, 3)))
    assert list(model.inputs) == ["a", "b"]
    found = model(a, b)
    compare(found[model.outputs[0]], a + b)
    compare(found[model.outputs[1]], torch.cat([a, b]) * 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_epsilon_of_a_root_mean_square(dtype: torch.dtype) -> None:
    x, net = (torch.randn(3, 64) * 1e-3).to(dtype), nn.RMSNorm(64, dtype=dtype).eval()
    tolerance = 1e-5 if dtype is torch.float32 else 4 * torch.finfo(dtype).eps
    with torch.no_grad():
        torch.testing.assert_close(
            dnnl.from_torch(net, x)(x), net(x), rtol=tolerance, atol=tolerance
        )


def test_sizes_that_stay_open() -> None:
    class Attention(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return attention(x)

    length = torch.export.Dim("length", min=2, max=512)
    model = dnnl.from_torch(Attention(), torch.randn(2, 6, 32), dynamic_shapes={"x": {1: length}})
    assert model.inputs["x"].shape[0] == 2
    assert isinstance(model.inputs["x"].shape[1], str)
    for count in (6, 9, 17, 2):
        x = torch.randn(2, count, 32)
        compare(model(x), attention(x))


RESIZED = {
    "nearest, sizes": {"size": (9, 14)},
    "nearest, factors": {"scale_factor": 2},
    "bilinear, sizes": {"size": (9, 14), "mode": "bilinear"},
    "bilinear, factors": {"scale_factor": (2, 3), "mode": "bilinear"},
    "bilinear, corners": {"size": (9, 14), "mode": "bilinear", "align_corners": True},
    "bicubic, half": {"scale_factor": 0.5, "mode": "bicubic"},
}


@pytest.mark.parametrize("how", RESIZED)
def test_resampling(how: str) -> None:
    class Resized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, **RESIZED[how])  # type: ignore[arg-type]

    x = torch.randn(2, 3, 6, 8)
    compare(dnnl.from_torch(Resized(), x)(x), Resized()(x))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2, "bidirectional": True},
        {"batch_first": True, "bias": False},
    ],
    ids=str,
)
def test_recurrent_layers(kind: type[nn.Module], options: dict[str, Any]) -> None:
    net, x = kind(8, 16, **options).eval(), torch.randn(5, 3, 8)
    compare_all(dnnl.from_torch(net, x)(x), net(x))


def test_a_recurrent_layer_of_relu() -> None:
    net = nn.RNN(8, 16, 2, nonlinearity="relu", bidirectional=True).eval()
    x, h = torch.randn(5, 3, 8), torch.randn(4, 3, 16)
    compare_all(dnnl.from_torch(net, (x, h))(x, h), net(x, h))


def test_a_projected_state_is_refused() -> None:
    with pytest.raises(dnnl.Unimplemented, match="a projection of the state"):
        dnnl.from_torch(nn.LSTM(8, 16, proj_size=4).eval(), torch.randn(5, 3, 8))


@pytest.mark.parametrize(
    ("name", "given", "options", "shape"),
    [case for case in CASES if "proj_size" not in case[2]],
    ids=str,
)
def test_modules_of_the_library(
    name: str, given: tuple[Any, ...], options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    net, x = getattr(nn, name)(*given, **options).eval(), torch.randn(shape)
    expected = net(x)
    compare_all(dnnl.from_torch(replace(net), x)(x), expected)


def test_an_open_batch_of_modules_of_the_library() -> None:
    layers = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.MaxPool2d(2), nn.Flatten(1, 2), nn.SiLU()
    net = nn.Sequential(*layers, nn.Linear(3, 6), nn.LayerNorm(6), nn.LayerNorm((12, 6))).eval()
    expected = net(x := torch.randn(7, 3, 8, 8))
    batch = torch.export.Dim("batch", min=2, max=64)
    model = dnnl.from_torch(replace(net), x[:3], dynamic_shapes={"input": {0: batch}})
    for count in (3, 7):
        compare(model(x[:count]), expected[:count])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_the_library(batch_first: bool, need_weights: bool) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.MultiheadAttention(16, 4, batch_first=batch_first)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
            return self.own(x, x, x, attn_mask=mask, need_weights=need_weights)

    net, x, mask = Masked().eval(), torch.randn(5, 5, 16), torch.rand(5, 5) > 0.5
    mask.fill_diagonal_(False)
    expected = net(x, mask)
    compare_all(dnnl.from_torch(replace(net), (x, mask))(x, mask), expected)


@pytest.mark.parametrize("heads", [1, 2, 8])
@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_of_heads_of_the_library(heads: int, is_causal: bool) -> None:
    class Attending(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return dnnl.torch.attention(q, k, v, is_causal=is_causal, enable_gqa=True)

    given = torch.randn(2, 8, 5, 6), torch.randn(2, heads, 7, 6), torch.randn(2, heads, 7, 4)
    expected = nn.functional.scaled_dot_product_attention(
        *given, is_causal=is_causal, enable_gqa=True
    )
    compare(dnnl.from_torch(Attending(), given)(*given), expected)


def test_what_the_library_has_alone_is_refused() -> None:
    class Squared(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return dnnl.torch.activation(lambda x: x * x)(x)

    with pytest.raises(dnnl.Unimplemented, match=r"dnnl\.function\.default"):
        dnnl.from_torch(Squared(), torch.randn(3))


def test_weights_are_on_the_memory_of_the_module() -> None:
    net = Net().eval()
    model = dnnl.from_torch(net, torch.randn(2, 3, 8, 8))
    addresses = {array.__array_interface__["data"][0] for array in model.graph.constants.values()}
    assert {own.data_ptr() for own in net.parameters()} <= addresses


def test_a_model_is_saved_and_written_as_onnx(tmp_path: Path) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 8, 8)
    model = dnnl.from_torch(net, x)
    expected = net(x)
    model.save(tmp_path / "net.dnnl")
    compare(dnnl.load(tmp_path / "net.dnnl", compile=False)(x), expected)
    (tmp_path / "net.onnx").write_bytes(model.to_onnx())
    compare(dnnl.load(tmp_path / "net.onnx")(x), expected)
    session = onnxruntime.InferenceSession(
        tmp_path / "net.onnx", providers=["CPUExecutionProvider"]
    )
    compare(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), expected)


def test_an_output_has_its_name_in_a_file(tmp_path: Path) -> None:
    """A linear layer is several nodes, the first of which has the name that PyTorch gives it."""
    net, x = nn.Linear(6, 4), torch.randn(3, 6)
    model = dnnl.from_torch(net, x)
    (tmp_path / "net.onnx").write_bytes(model.to_onnx())
    again = dnnl.load(tmp_path / "net.onnx")
    assert again.outputs == model.outputs == ("linear",)
    compare(again(x), net(x))
    session = onnxruntime.InferenceSession(
        tmp_path / "net.onnx", providers=["CPUExecutionProvider"]
    )
    compare(torch.from_numpy(session.run(["linear"], {"input": x.numpy()})[0]), net(x))


@pytest.mark.parametrize(
    ("shape", "slopes"),
    [((2, 3, 8, 8), 3), ((2, 4, 4), 4), ((5, 4), 4), ((2, 3, 4), 1), ((3,), 1), ((), 1)],
    ids=str,
)
def test_slopes_of_channels(shape: tuple[int, ...], slopes: int) -> None:
    """Channels are the second axis, also where the last one has as many elements."""
    net, x = nn.PReLU(slopes).eval(), torch.randn(shape)
    nn.init.uniform_(net.weight)
    compare(dnnl.from_torch(net, x)(x), net(x))


def test_conversions() -> None:
    class Converted(nn.Module):
        def forward(self, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x = a.float() / 255
            return x, (x * 9).long(), a.bool(), x.to(torch.float16), x.to(a.dtype)

    a = torch.randint(0, 256, (3, 5), dtype=torch.uint8)
    program = torch.export.export(Converted(), (a,))
    count = len(program.graph.nodes)
    found = dnnl.from_torch(program)(a)
    assert len(program.graph.nodes) == count
    for ours, theirs in zip(found.values(), Converted()(a), strict=True):
        assert ours.dtype == theirs.dtype
        compare(ours, theirs)


ROWS = torch.tensor([[3, 1, 3, -7], [2, 5, 5, 2], [-4, -9, 0, 0]])
FLOATS = torch.cat([torch.linspace(-30, 30, 99), torch.logspace(-30, 0, 99), torch.zeros(1)])
COMPOSED: dict[str, tuple[Any, ...]] = {
    "log1p": (torch.log1p, FLOATS.abs()),
    "log1p of integers": (torch.log1p, ROWS.abs()),
    "expm1": (torch.expm1, FLOATS),
    "logsigmoid": (functional.logsigmoid, FLOATS),
    "celu": (lambda x: functional.celu(x, 1.5), FLOATS),
    "softplus": (lambda x: functional.softplus(x, 2.0), FLOATS),
    "cross entropy": (functional.binary_cross_entropy_with_logits, FLOATS, FLOATS.sigmoid()),
    "logaddexp": (torch.logaddexp, FLOATS, FLOATS.flip(0)),
    "circular": (
        lambda x: functional.pad(x, (1, 2, 2, 1), mode="circular"),
        FLOATS[:96].view(1, 4, 4, 6),
    ),
    "empty": (lambda x: torch.empty_like(x).fill_(2) + x, FLOATS),
    "amax": (lambda x: x.amax(0), ROWS.to(torch.uint8)),
    "amin": (lambda x: x.amin((0, 1), keepdim=True), ROWS.to(torch.int16)),
    "max": (torch.max, ROWS.to(torch.int8)),
    "min": (torch.min, ROWS.to(torch.uint8)),
    "max along": (lambda x: list(x.max(1)), ROWS),
    "min along": (lambda x: list(x.min(0, keepdim=True)), ROWS.to(torch.uint8)),
    "argmax": (lambda x: x.argmax(1), ROWS),
    "argmax of all": (torch.argmax, ROWS.to(torch.int32)),
    "argmin": (lambda x: x.argmin(0, keepdim=True), ROWS.to(torch.int8)),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_operators_of_others(name: str) -> None:
    function, *given = COMPOSED[name]
    found = dnnl.from_torch(Called(function), given)(*given)
    ours, theirs = [*found.values()] if isinstance(found, Mapping) else found, function(*given)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-12)


def test_assertions_of_sizes() -> None:
    """An export writes those of sizes that it leaves open into the program."""

    class Checked(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            torch._check(a.shape[0] % 2 == 0)  # type: ignore[no-untyped-call]
            torch._check(a.shape[0] + b.shape[0] < 30)  # type: ignore[no-untyped-call]
            return torch.cat([a, b]) * 2

    program = torch.export.export(
        Checked(),
        (torch.randn(4, 3), torch.randn(5, 3)),
        dynamic_shapes=[{0: torch.export.Dim.DYNAMIC}] * 2,
        prefer_deferred_runtime_asserts_over_guards=True,
    )
    model = dnnl.from_torch(program)
    a, b = torch.randn(6, 3), torch.randn(7, 3)
    compare(model(a, b), Checked()(a, b))


def test_assertions_of_data_are_refused() -> None:
    class Checked(nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            torch._check(a.max().item() < 20)  # type: ignore[no-untyped-call]
            return a * 2

    with pytest.raises(dnnl.Unimplemented, match="_assert_scalar"):
        dnnl.from_torch(Checked(), torch.arange(12).reshape(3, 4))


def test_operators_that_models_lack_are_all_named() -> None:
    class Special(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = torch.special.bessel_j0(x) + torch.linalg.inv(x)
            again: torch.Tensor = torch.special.bessel_j0(found)
            return again + found

    with pytest.raises(dnnl.Unimplemented) as caught:
        dnnl.from_torch(Special(), torch.randn(3, 3))
    text = str(caught.value)
    assert "aten.special_bessel_j0.default" in text
    assert "(2 times)" in text
    assert "aten.linalg_inv_ex.default" in text


def test_a_module_that_changes_its_buffers_is_refused() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.count: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += x
            return x * self.count

    with pytest.raises(dnnl.Unimplemented, match=r"'count' .BUFFER_MUTATION.*eval\(\)"):
        dnnl.from_torch(Counting(), torch.randn(2))


def test_wrong_arguments() -> None:
    with pytest.raises(dnnl.InvalidArguments, match=r"expected a torch\.nn\.Module"):
        dnnl.from_torch(lambda x: x, torch.randn(3))  # type: ignore[arg-type]
    x = torch.randn(2, 3, 8, 8)
    examples: list[Any] = [None, 3, x.numpy(), {0: x}]
    for example in examples:
        with pytest.raises(dnnl.InvalidArguments, match=r"example.*a tensor, a tuple"):
            dnnl.from_torch(Net().eval(), example)
    examples = [(x.numpy(),), {"x": x.numpy()}]
    for example in examples:
        with pytest.raises(dnnl.InvalidArguments, match=r"example\[.*from_numpy"):
            dnnl.from_torch(Net().eval(), example)
    with pytest.raises(dnnl.InvalidArguments, match=r"dynamic_shapes.*torch\.export\.export"):
        dnnl.from_torch(torch.export.export(Net().eval(), (x,)), dynamic_shapes={"x": {0: "batch"}})


def test_arguments_of_the_example() -> None:
    """A list is one of positional arguments, a dict one of arguments by name."""

    class Sum(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
            return a + b * factor

    a, b = torch.randn(2, 3), torch.randn(3)
    expected = a + b * 3
    for example in ([a, b, 3.0], {"b": b, "factor": 3.0, "a": a}):
        model = dnnl.from_torch(Sum(), example)
        compare(model(a=a, b=b), expected)
    batch = torch.export.Dim("batch", min=1, max=9)
    model = dnnl.from_torch(Sum(), {"a": a, "b": b}, dynamic_shapes={"a": {0: batch}, "b": None})
    compare(model(a=torch.cat([a, a]), b=b), torch.cat([a, a]) + b * 2)
