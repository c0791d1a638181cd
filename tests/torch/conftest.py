"""What all tests of the backend need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from dnnl.framework import compiler


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


@pytest.fixture
def with_gradients() -> Iterator[None]:
    with torch.enable_grad():
        yield


@pytest.fixture(params=(1, 2), ids=("1thread", "2threads"))
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is compiled."""
    found: list[Any] = []
    original = compiler.compiled

    def counted(*args: Any, **keywords: Any) -> Any:
        found.append(args[0])
        return original(*args, **keywords)

    monkeypatch.setattr("dnnl.framework.compiler.compiled", counted)
    monkeypatch.setattr("dnnl.torch.runs.compiled", counted)
    return found
