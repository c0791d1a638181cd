"""Operators of PyTorch's database: none is wrong, and docs/pytorch-operators.md says whose."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch

from tests.torch import gradient_cases, operators_page
from tests.torch.operator_cases import (
    DTYPES,
    RAW,
    WRONG,
    Outcome,
    compared,
    farther,
    outcomes,
    unlike,
)
from tests.torch.operators_page import PAGE

SAMPLE = (
    "_batch_norm_with_update",  # whose results PyTorch foretells in another type
    *("add", "argmax", "bmm", "cat", "clamp", "cumsum", "expand", "fft.fft", "gather", "index_put"),
    *("logsumexp", "masked_fill", "max.reduction_with_dim", "mean", "nn.functional.avg_pool2d"),
    *("nn.functional.conv2d", "nn.functional.dropout", "nn.functional.embedding"),
    *("nn.functional.gelu", "nn.functional.grid_sample", "nn.functional.group_norm"),
    *(
        "nn.functional.interpolate.bilinear",
        "nn.functional.layer_norm",
        "nn.functional.pad.constant",
    ),
    *("nn.functional.scaled_dot_product_attention", "pow", "remainder", "roll", "scatter_add"),
    "native_batch_norm",  # whose empty results have the type of the statistics
    *("softmax", "split", "svd", "tril", "true_divide", "unfold", "var", "where"),
)
"""Operators of every family, and some that are PyTorch's."""
DIFFERENTIATED = (
    *("nn.functional.avg_pool1d", "nn.functional.batch_norm", "nn.functional.conv_transpose2d"),
    *("log_softmax", "nn.functional.max_pool2d", "nn.functional.max_pool1d"),
)
"""Further ones whose gradients are operators of their own."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.covers
@pytest.mark.parametrize("name", SAMPLE)
def test_an_operator(name: str) -> None:
    found = {kind: outcomes(name, dtype) for kind, dtype in DTYPES.items()}
    found = {kind: own for kind, own in found.items() if own}
    for kind, own in found.items():
        bad = [one for one in own if one.state in (WRONG, RAW)]
        assert not bad, kind
    states = {kind: operators_page.state(own) for kind, own in found.items()}
    entry = operators_page.entry(name, states)
    check_listed(operators_page.SECTIONS, entry, operators_page.section(states))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float64, torch.int32, torch.uint8, torch.bool]
)
def test_further_types(dtype: torch.dtype) -> None:
    for name in ("clamp", "index_put", "native_batch_norm", "sum"):
        assert not [own for own in outcomes(name, dtype) if own.state in (WRONG, RAW)], name


def check_listed(sections: Mapping[str, str], entry: str, state: str) -> None:
    """An entry is in the section of its state, if there is one, unless the page is that of another
    version of PyTorch."""
    text = PAGE.read_text(encoding="utf-8")
    if f"PyTorch {torch.__version__.partition('+')[0]}'s" not in text:
        return
    found = []
    for title, section in sections.items():
        head = section.partition("\n")[0]
        (part,) = re.findall(rf"^{head}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
        entries = " ".join(part.strip().split("\n\n")[1].split())
        listed = re.sub(r" \([^)]*\)", lambda own: own[0].replace(", ", "/"), entries)
        if entry.replace(", ", "/") in listed.split(", "):
            found.append(title)
    rule = "python -m tests.torch.operators_page writes the page"
    assert found == [own for own in sections if own == state], rule


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("with_gradients")
@pytest.mark.parametrize("name", [*SAMPLE[::4], *DIFFERENTIATED])
@pytest.mark.covers
def test_gradients_of_an_operator(name: str) -> None:
    found = []
    for kind, dtype in gradient_cases.DTYPES.items():
        found += gradient_cases.gradient_outcomes(name, dtype)
        assert not [own for own in found if own.state in (WRONG, RAW)], kind
    if found:
        check_listed(operators_page.GRADIENT_SECTIONS, name, operators_page.state(found))


def test_states_of_operators() -> None:
    ours, left, refused = Outcome("dnnl"), Outcome("PyTorch"), Outcome("refused")
    assert operators_page.state([ours, ours]) == "dnnl"
    assert operators_page.state([ours, refused]) == "dnnl"
    assert operators_page.state([ours, left]) == "partly"
    assert operators_page.state([ours, Outcome("wrong")]) == "wrong"
    assert operators_page.section({"f32": "dnnl", "int64": "PyTorch"}) == "dnnl"
    assert operators_page.entry("a", {"f32": "dnnl", "int64": "PyTorch"}) == "a (f32)"
    assert operators_page.entry("a", {"f32": "dnnl", "int64": "dnnl"}) == "a"


def test_comparisons() -> None:
    one, third = torch.ones(2, 1, dtype=torch.float16), torch.full((2, 1), 1 / 3)
    assert not compared([one, 3], [one * 1.001, 3])
    assert compared(one, one * 1.01)
    assert compared([one, 3], [one, 4])
    assert unlike(one, one.float()) == "torch.float16 (2, 1) instead of torch.float32 (2, 1)"
    assert unlike(one, one[0]) == "torch.float16 (2, 1) instead of torch.float16 (1,)"
    assert not unlike(one, one.as_strided((2, 1), (1, 7)))  # an axis of one element
    assert unlike(one.expand(2, 2), one.repeat(1, 2)) == "strides (1, 0) instead of (2, 1)"
    exact, eager = torch.full((2, 1), 1 / 3, dtype=torch.float64), third.half()
    assert not farther([third, None], [[eager, None]], [exact, None])
    assert farther(eager, [third], exact).startswith("result 0 is 8.1")
    assert not farther(one / 0, [one], exact / 0)
    assert farther(one / 0, [one], exact)
