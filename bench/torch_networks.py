"""Networks of PyTorch through ``torch.compile(net, backend="dnnl")``, beside eager and inductor.

    python -m bench.torch_networks resnet50 bert --inductor

compiles networks of torchvision and transformers with random weights for inference, or for training
with ``--train`` (a forward and a backward pass, dropout included), and prints a row for each:
operators that dnnl computes, graph breaks, the largest error relative to the largest result or
gradient, processor seconds to compile with empty caches, and times of alternating calls: those of
the processor on one thread, of the clock on several. The last row has geometric means. The extra
``export`` installs the networks; inductor needs a C++ compiler.
"""

from __future__ import annotations

import copy
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from subprocess import PIPE
from typing import Any

import click
import torch
from torch.utils import _pytree as pytree

import dnnl
import dnnl.torch
from bench.export import SEED, declare_operators
from dnnl.torch.backend import compile_graph

_ROUNDS = 9
_LIMITS = {
    "DNNL_MAX_CPU_ISA": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
"""Variables of the environment that hold all sides to AVX2."""
_COLUMNS = (
    *("network", "operators by dnnl", "breaks", "error", "compile s", "of inductor"),
    *("ms", "eager", "inductor"),
)

Made = tuple[Any, tuple[Any, ...]]
"""A network and the arguments of a call."""


def _vision(name: str, size: int = 224, images: int = 1, **options: Any) -> Made:
    from torchvision import models

    make = getattr(models, name, None) or getattr(models.segmentation, name)
    return make(weights=None, **options), (torch.randn(images, 3, size, size),)


def _tokens(count: int, rows: int = 1) -> torch.Tensor:
    return torch.randint(0, 5000, (rows, count))


def _bert(rows: int = 1) -> Made:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()), (_tokens(128, rows),)


class _Step(torch.nn.Module):
    """One token of a decoder: logits and the longer cache for a cache of ``past`` tensors."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, ids: torch.Tensor, past: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.decoder(ids, past_key_values=cache, use_cache=True)
        return [found.logits, *(own for one in cache.layers for own in (one.keys, one.values))]


def _gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config()
    past = [torch.randn(1, 12, 64, 64) for _ in range(2 * config.n_layer)]
    return _Step(GPT2LMHeadModel(config)), (_tokens(1), past)


def _llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=8,
        num_attention_heads=12,
        num_key_value_heads=4,
        vocab_size=8000,
        use_cache=False,
    )
    return LlamaForCausalLM(config), (_tokens(128),)


def _t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8, use_cache=False)
    net = T5ForConditionalGeneration(config)
    return net, (_tokens(64), None, _tokens(16))


def _whisper() -> Made:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
        use_cache=False,
    )
    net = WhisperForConditionalGeneration(config)
    return net, (torch.randn(1, 80, 3000), None, _tokens(16))


NETWORKS: dict[str, Callable[[], Made]] = {
    "resnet50": partial(_vision, "resnet50"),
    "mobilenet_v3": partial(_vision, "mobilenet_v3_large"),
    "efficientnet_b0": partial(_vision, "efficientnet_b0"),
    "convnext_tiny": partial(_vision, "convnext_tiny"),
    "vit_b_16": partial(_vision, "vit_b_16"),
    "swin_t": partial(_vision, "swin_t"),
    "deeplabv3": partial(_vision, "deeplabv3_resnet50", weights_backbone=None),
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "t5": _t5,
    "whisper": _whisper,
}


class _Tagger(torch.nn.Module):
    """A class for each token, by a recurrent layer in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5000, 256)
        self.layer = torch.nn.LSTM(256, 256, bidirectional=True, batch_first=True)
        self.tags = torch.nn.Linear(512, 50)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.tags(self.layer(self.words(ids))[0])
        return found


BATCHES: dict[str, Callable[[], Made]] = {
    "resnet50_8": partial(_vision, "resnet50", images=8),
    "deeplabv3_2": partial(_vision, "deeplabv3_resnet50", images=2, weights_backbone=None),
    "bert_2": partial(_bert, 2),
    "tagger": lambda: (_Tagger(), (_tokens(40, 16),)),
}
"""Batches for training."""


def _random(net: torch.nn.Module) -> None:
    """Parameters that are zero or one would hide mistakes."""
    for parameter in net.parameters():
        if parameter.ndim == 1:
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        elif not parameter.any():
            parameter.normal_(0.0, 0.02)


def _used() -> float:
    """Processor seconds of this process and its children."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system


def _tensors(results: Any) -> list[torch.Tensor]:
    return [own for own in pytree.tree_leaves(results) if isinstance(own, torch.Tensor)]


def _error(actual: Any, expected: Any) -> float:
    """The largest error relative to the largest number of its tensor; gradients that are nothing
    but rounding count beside a thousandth of the largest one."""
    pairs = list(zip(_tensors(actual), _tensors(expected), strict=True))
    least = max(float(b.abs().max()) for _, b in pairs if b.numel()) / 1000
    return max(
        float((a - b).abs().max()) / max(float(b.abs().max()), least) for a, b in pairs if b.numel()
    )


def _step(net: torch.nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
    """A forward and a backward pass through ``function``: the gradients of all parameters."""

    def step(*arguments: Any) -> list[torch.Tensor]:
        torch.manual_seed(SEED)
        net.zero_grad()
        found = [own for own in _tensors(function(*arguments)) if own.requires_grad]
        sum(own.float().square().mean() for own in found).backward()  # type: ignore[union-attr]
        return [own.grad for own in net.parameters() if own.grad is not None]

    return step


def _without_breaks(net: torch.nn.Module) -> torch.nn.Module:
    """The network with the library's recurrent layers; at torch.nn's Dynamo breaks graphs."""
    if any(isinstance(own, torch.nn.RNNBase) for own in net.modules()):
        net = copy.deepcopy(net)
        for own in net.modules():
            if isinstance(own, torch.nn.RNNBase):
                dnnl.torch.replace(own)
    return net


def row(name: str, inductor: bool, bf16: bool, train: bool) -> str:
    """What the table says of a network."""
    torch.manual_seed(SEED)
    library = declare_operators(torch)
    net, arguments = {**NETWORKS, **BATCHES}[name]()
    net.train(train)
    with torch.no_grad():
        _random(net)
    own_net = _without_breaks(net)
    kind = torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext()

    def called(owner: torch.nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
        return _step(owner, function) if train else function

    with torch.set_grad_enabled(train), kind:
        expected = called(net, net)(*arguments)
        start = _used()
        ours = called(own_net, torch.compile(own_net, backend=compile_graph))
        error = _error(ours(*arguments), expected)
        seconds = [_used() - start]
        functions = [ours, called(net, net)]
        if inductor:
            start = _used()
            functions.append(called(net, torch.compile(net)))
            functions[-1](*arguments)
            seconds.append(_used() - start)
        now = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        times: list[list[float]] = [[] for _ in functions]
        for _ in range(_ROUNDS):
            for function, own in zip(functions, times, strict=True):
                start_of_call = now()
                function(*arguments)
                own.append(now() - start_of_call)
        torch._dynamo.reset()
        found = dnnl.explain_graph(own_net, *arguments)
    del library
    count = sum(own.where == "dnnl" for own in found.decisions)
    middle = [statistics.median(own) for own in times]
    ratios = [f"{own / middle[0]:.2f}" for own in middle[1:]]
    cells = [name, f"{count} of {len(found.decisions)}", str(len(found.breaks)), f"{error:.0e}"]
    cells += [f"{seconds[0]:.1f}", f"{seconds[1]:.1f}" if inductor else ""]
    cells += [f"{middle[0] * 1e3:.1f}", *ratios, *([] if inductor else [""])]
    return f"| {' | '.join(cells)} |"


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice([*NETWORKS, *BATCHES]))
@click.option("--inductor", is_flag=True, help="Beside PyTorch's own compiler as well.")
@click.option("--bf16", is_flag=True, help="Under autocast to bf16.")
@click.option("--train", is_flag=True, help="A forward and a backward pass.")
@click.option("--threads", default=1, help="Threads of all.")
@click.option("--avx2", is_flag=True, help="All without AVX-512.")
@click.option("--one", is_flag=True, hidden=True)
def main(
    names: Sequence[str],
    inductor: bool,
    bf16: bool,
    train: bool,
    threads: int,
    avx2: bool,
    one: bool,
) -> None:
    """Print the table; each network has a process and empty caches of its own."""
    if one:
        torch.set_num_threads(threads)
        print(row(names[0], inductor, bf16, train), flush=True)
        return
    print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}", flush=True)
    rows = []
    for name in names or (*NETWORKS, *(BATCHES if train else ())):
        choices = ("--inductor", inductor), ("--bf16", bf16), ("--train", train)
        flags = [flag for flag, given in choices if given]
        command = [sys.executable, "-m", "bench.torch_networks", name, *flags, "--one"]
        with tempfile.TemporaryDirectory() as caches:
            given = {
                "DNNL_CACHE_DIR": f"{caches}/dnnl",
                "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch",
            }
            environment = {**os.environ, **given, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            environment |= _LIMITS if avx2 else {}
            command += ["--threads", str(threads)]
            done = subprocess.run(command, env=environment, stdout=PIPE, text=True, check=False)
        print(done.stdout, end="", flush=True)
        rows += [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    print(f"| geometric mean {'| ' * (len(_COLUMNS) - 2)}| {_means(rows)} |")


def _means(rows: Sequence[Sequence[str]]) -> str:
    """Geometric means of the last two columns, eager's and inductor's ratios."""
    columns = ([cells[place].strip(" |") for cells in rows] for place in (-2, -1))
    found = ([float(cell) for cell in cells if cell] for cells in columns)
    return " | ".join(f"{statistics.geometric_mean(own):.2f}" if own else "" for own in found)


if __name__ == "__main__":
    main()
