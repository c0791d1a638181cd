"""Networks as ``torch.onnx.export`` writes them, with random weights; nothing is downloaded.

    python -m bench.export bert build/bert.onnx --int8 static

writes one of BERT-base (128 tokens), GPT-2 (64 tokens, no cache), ViT-B/16, ResNet-50 and
MobileNetV2 (one image) from the classes of ``transformers`` and ``torchvision``, if asked for as
ONNX Runtime's quantizer leaves it. The extra ``export`` installs these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

SEED = 1
QUANTIZERS = ("static", "dynamic")
_FLOAT = 1
"""onnx.TensorProto.FLOAT"""
_VOCABULARY = 30000
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


def declare_operators(torch: ModuleType) -> Any:
    """Names for the compiled operators of torchvision, which need not load where torch is built
    for processors only; no model here runs one."""
    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}(Tensor a) -> Tensor")
        library.define(f"_{name}_backward(Tensor a) -> Tensor")
    return library


def _bert(torch: ModuleType) -> tuple[Any, Any]:
    from transformers import BertConfig, BertModel

    config = BertConfig()
    return BertModel(config), torch.randint(0, config.vocab_size, (1, _TOKENS["bert"]))


def _gpt2(torch: ModuleType) -> tuple[Any, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(use_cache=False)
    return GPT2LMHeadModel(config), torch.randint(0, config.vocab_size, (1, _TOKENS["gpt2"]))


def _vit(torch: ModuleType) -> tuple[Any, Any]:
    from torchvision.models import vit_b_16

    return vit_b_16(weights=None), torch.randn(1, 3, 224, 224)


def _image_network(name: str, torch: ModuleType) -> tuple[Any, Any]:
    """Normalizations that have seen data, so that no layer's values grow with those before it."""
    from torchvision import models

    model = getattr(models, name)(weights=None)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches
    model.train()
    with torch.no_grad():
        model(torch.randn(4, 3, 224, 224))
    return model, torch.randn(1, 3, 224, 224)


MODELS: dict[str, Callable[[ModuleType], tuple[Any, Any]]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "mobilenet": partial(_image_network, "mobilenet_v2"),
    "resnet50": partial(_image_network, "resnet50"),
    "vit": _vit,
}


def export(name: str, path: Path, int8: str | None = None) -> None:
    """Write the model of that name, all parameters random: biases that are zero and scales that are
    one would hide mistakes. ``int8`` is one of `QUANTIZERS`."""
    import torch

    library = declare_operators(torch)
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
    if int8 is not None:
        _quantize(path, int8)


def _quantize(path: Path, how: str) -> None:
    """Weights in s8, scaled by columns, and activations in u8: by scales of two samples, or by
    those that each execution finds."""
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    known = path.with_suffix(".float.onnx")
    quant_pre_process(str(path), str(known))
    if how == "dynamic":
        quantization.quantize_dynamic(str(known), str(path), per_channel=True)
    else:
        inputs = onnx.load(known, load_external_data=False).graph.input
        samples = _Samples([random_inputs(inputs, seed) for seed in range(2)])
        quantization.quantize_static(str(known), str(path), samples, per_channel=True)
    known.unlink()


class _Samples:
    """What ONNX Runtime's calibration reads, which looks for nothing but this method."""

    def __init__(self, feeds: list[dict[str, np.ndarray]]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> dict[str, np.ndarray] | None:
        """The next sample, None after the last."""
        return next(self._feeds, None)


def random_inputs(inputs: Any, seed: int) -> dict[str, np.ndarray]:
    """Normal floats, and tokens."""
    rng = np.random.default_rng(seed)
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in inputs}
    floats = {i.name for i in inputs if i.type.tensor_type.elem_type == _FLOAT}
    return {
        name: rng.standard_normal(shape, np.float32)
        if name in floats
        else rng.integers(0, _VOCABULARY, shape)
        for name, shape in shapes.items()
    }


@click.command(help=__doc__)
@click.argument("name", type=click.Choice(sorted(MODELS)))
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--int8", type=click.Choice(QUANTIZERS), help="Scales found beforehand or each time.")
def main(name: str, path: Path, int8: str | None) -> None:
    """Write one model."""
    export(name, path, int8)
    click.echo(f"{path}: {path.stat().st_size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
