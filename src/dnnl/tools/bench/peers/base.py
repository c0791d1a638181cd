"""What a peer is: another library that does an operation of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array
from dnnl.tools.measure import Queue
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc

LARGEST_BELOW_S32 = 2147483520.0
"""The largest f32 below 2^31, at which peers saturate: the largest s32 is no f32."""


@dataclass(frozen=True)
class Deviation:
    """Elements ``at`` which a peer is known to give other results than the specification has."""

    reason: str
    at: NDArray[np.bool_]


class PeerOperation(Protocol):
    """An operation of a peer. ``impl_info`` names who does it."""

    @property
    def impl_info(self) -> str: ...

    def load(self, values: Mapping[int, Array], parameters: Mapping[int, MemoryDesc]) -> None:
        """Give every argument its contents; ``parameters`` describes those of the attributes.

        There may be contents of what the forward pass of a backward one alone reads.
        """

    def bind(self) -> Callable[[], object]:
        """Execute once, and return what executes again as long as this operation lives; the peer's
        queue, if it has one, is to be waited for."""

    def read(self, argument: int) -> Array:
        """An output."""

    def deviation(self, exact: Array) -> Deviation | None:
        """Where the destination may differ from ours although ours is right, if anywhere;
        ``exact`` is what it should hold before it is rounded."""

    def sums(self, kind: str) -> Array:
        """The compensation of one kind behind the destination, with size 1 where it is summed."""


class Peer(Protocol):
    """A library with its version as ``name``. All of its refusals are Unimplemented."""

    @property
    def name(self) -> str: ...

    @property
    def queue(self) -> Queue | None:
        """Where its executions return before their work is done, what waits for that."""

    def make(
        self,
        desc: Desc,
        attr: PrimitiveAttr,
        num_threads: int,
        known: Desc | None = None,
        forward: Desc | None = None,
    ) -> PeerOperation:
        """The operation as it was asked for, on so many threads; ``known`` is the same with the
        sizes of the execution, where these are open, and ``forward`` the forward operation that a
        backward one belongs to."""
