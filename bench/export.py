"""Transformers as ``torch.onnx.export`` writes them, with random weights; nothing is downloaded.

    python -m bench.export bert build/bert.onnx

writes one of BERT-base (128 tokens), GPT-2 (64 tokens, no cache) and ViT-B/16 (one image) from the
classes of ``transformers`` and ``torchvision``. The extra ``export`` installs these.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SEED = 1
_TOKENS = {"bert": 128, "gpt2": 64}
_OPERATORS = (
    "nms",
    "qnms",
    "roi_align",
    "ps_roi_align",
    "roi_pool",
    "ps_roi_pool",
    "deform_conv2d",
)


def _declare_operators(torch: Any) -> Any:
    """Names for the compiled operators of torchvision, which need not load where torch is built
    for processors only; no model here runs one."""
    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor a) -> Tensor")
        library.define(f"_{name}_backward(Tensor a) -> Tensor")
    return library


def _bert(torch: Any) -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return BertModel(config), torch.randint(0, config.vocab_size, (1, _TOKENS["bert"]))


def _gpt2(torch: Any) -> tuple[Any, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(use_cache=False)
    return GPT2LMHeadModel(config), torch.randint(0, config.vocab_size, (1, _TOKENS["gpt2"]))


def _vit(torch: Any) -> tuple[Any, Any]:
    from torchvision.models import vit_b_16

    return vit_b_16(weights=None), torch.randn(1, 3, 224, 224)


MODELS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "bert": _bert, "gpt2": _gpt2, "vit": _vit,
}  # fmt: skip


def export(name: str, path: Path) -> None:
    """Write the model of that name, all parameters random: biases that are zero and scales that are
    one would hide mistakes."""
    import torch

    library = _declare_operators(torch)
    torch.manual_seed(SEED)
    model, example = MODELS[name](torch)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
            elif not parameter.any():
                parameter.normal_(0.0, 0.02)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(model, (example,), str(path), dynamo=True, external_data=False)
    del library


@click.command(help=__doc__)
@click.argument("name", type=click.Choice(sorted(MODELS)))
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def main(name: str, path: Path) -> None:
    """Write one model."""
    export(name, path)
    click.echo(f"{path}: {path.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
