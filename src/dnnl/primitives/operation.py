"""The record of an operation: everything about it that is a fact rather than a computation.

Descriptions, checks, verbose lines and their inverse, the cases of ``dnnl bench``, ``dnnl explain``
and the generic tests read it. Nothing else knows one operation from another, but for the tables of
peers and of ONNX operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.errors import Unimplemented
from dnnl.language.case import CaseValues
from dnnl.language.options import Driver
from dnnl.primitives.implementation import Candidate, Implementation
from dnnl.primitives.parameters import Domain
from dnnl.reference.arrays import Array
from dnnl.reference.specification import Specification
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc

Passes = frozenset[PropKind]

NEVER: Passes = frozenset()
INFERENCE: Passes = frozenset({PropKind.forward_inference})
TRAINING: Passes = frozenset({PropKind.forward_training})
FORWARD = INFERENCE | TRAINING
BACKWARD_DATA: Passes = frozenset({PropKind.backward, PropKind.backward_data})
BACKWARD_WEIGHTS: Passes = frozenset({PropKind.backward, PropKind.backward_weights})
BACKWARD = BACKWARD_DATA | BACKWARD_WEIGHTS
ALL = FORWARD | BACKWARD
BY_DATA: Passes = frozenset({PropKind.backward_data})
BY_WEIGHTS: Passes = frozenset({PropKind.backward_weights})
"""Where each gradient is an operation of its own, they are these."""


def _always(_: object) -> bool:
    return True


def _none(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Role:
    """A tensor that an operation may have.

    ``argument`` is its key at execution and ``name`` what verbose lines call it. ``field`` is the
    field of the description that holds its descriptor; one that follows from the others is
    ``derived`` from the description instead. With ``many`` the field holds any number of
    descriptors, whose arguments count up from ``argument``.

    It is an input in the passes of ``reads`` and an output in those of ``writes``, if ``when``
    holds for the description. An ``optional`` one may be absent even then.

    A layout may be left ``any`` where ``chosen`` says that an implementation decides it, and where
    ``like`` names the fields whose layout it takes, the first one first that has one; ``("",)``
    means row-major. A gradient takes that of the forward description unless it is ``independent``.
    ``case`` is the descriptor that a case of ``dnnl bench`` means.
    """

    argument: int
    name: str
    field: str = ""
    reads: Passes = NEVER
    writes: Passes = NEVER
    when: Callable[..., bool] = _always
    derived: Callable[..., MemoryDesc] | None = None
    many: bool = False
    optional: bool = False
    chosen: bool = False
    like: tuple[str, ...] = ()
    independent: bool = False
    case: Callable[[CaseValues], Any] = _none
    letters: str = "*"
    """The letters of the dimensions by their meaning; a star at the end means the spatial ones,
    one at the beginning for a, b, ..., ``[g]`` for groups where there are such."""
    remark: Callable[[MemoryDesc], str] | None = None
    """What verbose lines add to the token of the tensor."""

    @property
    def open(self) -> bool:
        """Whether the layout may be left ``any``."""
        return self.chosen or bool(self.like)

    def covers(self, argument: int) -> bool:
        """Whether an argument is one of the tensors."""
        return argument == self.argument or (self.many and argument > self.argument)


@dataclass(frozen=True)
class Parameter:
    """A number, an algorithm or a set of flags of an operation.

    ``field`` is the field of the description, ``verbose`` the name in the auxiliary part of verbose
    lines, empty for what the problem says there, and ``case`` its value in a case. Where it is
    None, ``default`` makes it out of the description. Verbose lines leave ``usual`` out, which it
    also is in other passes than ``passes``.
    """

    field: str
    domain: Domain[Any]
    case: Callable[[CaseValues], object]
    verbose: str = ""
    default: Callable[..., object] | None = None
    usual: object = None
    passes: Passes = ALL


@dataclass(frozen=True)
class Operation:
    """One operation.

    ``kind`` is its name in verbose lines, ``summary`` what it does in one line, ``driver`` the
    language of its cases, and ``examples`` are cases that the generic tests run in every
    propagation, those with post-ops in every forward one. ``in_place`` are the pairs of an output
    and an input that may share one buffer if their descriptors are equal. ``compensated`` are the
    weights that may have sums behind them; ``across_engines`` says whether src may be on another
    engine than dst.

    ``flops`` counts multiplications and additions of a description. ``invalid`` says why a case
    makes no sense; ``complete`` adds to a description what its case says beyond tensors and
    parameters, ``attributes`` to its attribute what only this operation has. ``mask`` reads a name
    for the dimensions along which scales vary, None where it has the usual meaning; ``channels`` is
    the dimension that the name ``per_oc`` of a post-op means.
    ``contents`` are what a case says of the elements of inputs, by argument. ``formerly`` are the
    kinds, or algorithms, of version 2 that are this operation now, each with its algorithm of
    today, if it has one. ``sums`` says whether oneDNN documents a sum with dst.
    ``scales_result`` says that the scale of src multiplies what the operation computes, before
    post-ops, and not src. ``only_moves`` says that layouts and types change and no more,
    ``reads_indexed`` that only those elements of src are read that indices name. ``operands`` is
    the range of the integers that the operands of post-ops are filled with.
    """

    kind: str
    summary: str
    driver: Driver
    roles: tuple[Role, ...]
    parameters: tuple[Parameter, ...]
    reference: Specification
    implementations: tuple[Implementation, ...]
    examples: tuple[str, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    compensated: tuple[int, ...] = ()
    across_engines: bool = False
    flops: Callable[..., int] = lambda _: 0
    invalid: Callable[[CaseValues], str | None] = _none
    complete: Callable[..., Any] = lambda desc, _: desc
    attributes: Callable[..., None] = _none
    mask: Callable[[CaseValues, str, str, int], int | None] = _none
    channels: int = 1
    contents: Callable[[CaseValues], dict[int, Array]] = lambda _: {}
    formerly: Mapping[str, str] = field(default_factory=dict)
    sums: bool = False
    scales_result: bool = False
    only_moves: bool = False
    reads_indexed: bool = False
    operands: tuple[int, int] = (-16, 16)

    def role(self, argument: int) -> Role:
        """The role of the argument of one of the tensors."""
        return next(role for role in self.roles if role.covers(argument))

    def lacks(self, prop_kind: PropKind) -> Unimplemented:
        """The error for a propagation that no implementation does."""
        message = f"{self.kind} has no {prop_kind}"
        refusal = Refusal(Reason.PROP_KIND, str(prop_kind))
        return Unimplemented(message, [Candidate(i.name, refusal) for i in self.implementations])

    @property
    def passes(self) -> Passes:
        """The propagation kinds that the operation has."""
        return frozenset().union(*(role.reads | role.writes for role in self.roles))
