"""PyTorch's databases of modules and of errors: results are eager's, and so are errors."""

from __future__ import annotations

import pytest

from tests.torch import error_cases
from tests.torch.error_cases import ACCEPTED, SAME, TRACED
from tests.torch.module_cases import module_outcomes
from tests.torch.operator_cases import OURS, RAW, WRONG

MODULES = (
    *("nn.BatchNorm2d", "nn.ConvTranspose2d", "nn.CrossEntropyLoss", "nn.GRUCell", "nn.LayerNorm"),
    *("nn.LazyConv1d", "nn.MaxPool2d", "nn.MultiheadAttention"),
)
"""Of every family."""
OPERATORS = ("aminmax", "cat", "gather", "index_add", "nn.functional.conv2d", "scatter_add", "take")
"""Those whose errors PyTorch raises in tracing, and all whose errors kernels find first."""
FAILING = ("nn.BatchNorm2d", "nn.GRU", "nn.LSTMCell", "nn.NLLLoss")
"""Modules that check what they are called with, or leave it to operators."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("with_gradients")
@pytest.mark.parametrize("name", MODULES)
def test_a_module(name: str) -> None:
    for training in (False, True):
        found = module_outcomes(name, training, 1)
        assert found
        assert not [own for own in found if own.state in (WRONG, RAW)], training
        assert training or {own.state for own in found} == {OURS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_errors_of_an_operator(name: str) -> None:
    found = error_cases.raised(name)
    assert found
    assert not [own for own in found if own.state not in (SAME, TRACED, ACCEPTED)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAILING)
def test_errors_of_a_module(name: str) -> None:
    found = error_cases.module_raised(name)
    assert found
    assert not [own for own in found if own.state not in (SAME, TRACED, ACCEPTED)]
