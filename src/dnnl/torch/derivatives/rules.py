"""What a function on arrays has for its gradients: a counterpart, or rules for its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch

Arguments: TypeAlias = SimpleNamespace
"""The arguments of a call by name, its ``result``, and the ``place`` of the one that is asked for
in its sequence. Tensors that a rule does not read have sizes and types alone."""


@dataclass(frozen=True)
class Rule:
    """The gradient of one argument, of that of the result and of the arguments.

    It is summed to the shape of the argument where that was broadcast, and converted to its type.
    ``reads`` are the names of the tensors that are saved for it. A function that is written with
    differentiable ones has second derivatives.
    """

    function: Callable[[torch.Tensor, Arguments], torch.Tensor]
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counterpart:
    """A differentiable function that takes the arguments by name in place of the one on arrays.

    The tensors of ``alike`` are converted to their common type first.
    """

    function: Callable[..., Any]
    alike: tuple[str, ...] = ("x",)


Gradients: TypeAlias = Counterpart | Mapping[str, Rule]
