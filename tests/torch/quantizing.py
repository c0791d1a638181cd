"""Networks, and torchao's PT2E quantization of them for x86 processors."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as PyTorch's users write it

with warnings.catch_warnings():  # what it imports of PyTorch is deprecated
    warnings.simplefilter("ignore")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86


class Residual(nn.Module):
    """Convolutions, a residual, poolings of both kinds and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.second, self.third = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 24, 1)
        self.head = nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        y = F.relu(self.third(F.relu(self.second(y) + y)))
        found: torch.Tensor = self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))
        return found


class Perceptron(nn.Sequential):
    """Linear layers alone."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(32, 70), nn.ReLU(), nn.Linear(70, 48), nn.ReLU(), nn.Linear(48, 9)
        )


class Transformer(nn.Module):
    """Attention of four heads and a perceptron with GELU, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.behind = nn.LayerNorm(32), nn.LayerNorm(32)
        self.queries, self.keys, self.values = (nn.Linear(32, 32) for _ in range(3))
        self.out, self.up, self.down = nn.Linear(32, 32), nn.Linear(32, 96), nn.Linear(96, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        heads = (
            own(y).unflatten(-1, (4, 8)).transpose(1, 2)
            for own in (self.queries, self.keys, self.values)
        )
        x = x + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        found: torch.Tensor = x + self.down(F.gelu(self.up(self.behind(x))))
        return found


BATCH = torch.export.Dim("batch", min=2, max=64)


def quantized(
    net: nn.Module,
    x: torch.Tensor,
    *,
    dynamic: bool = False,
    reduced: bool = False,
    folded: bool = True,
) -> torch.fx.GraphModule:
    """A network with an open batch, calibrated on ``x`` and converted."""
    config = x86.get_default_x86_inductor_quantization_config(
        is_dynamic=dynamic, reduce_range=reduced
    )
    quantizer = x86.X86InductorQuantizer().set_global(config)
    module: Any = torch.export.export(net.eval(), (x,), dynamic_shapes=({0: BATCH},)).module()
    prepared = prepare_pt2e(module, quantizer)
    prepared(x)
    prepared(x)
    converted: torch.fx.GraphModule = convert_pt2e(prepared, fold_quantize=folded)
    return converted


def exported(converted: torch.fx.GraphModule, x: torch.Tensor) -> torch.export.ExportedProgram:
    """The program of a converted network with an open batch."""
    return torch.export.export(converted, (x,), dynamic_shapes=({0: BATCH},))
