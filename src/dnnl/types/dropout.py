"""Dropout as an attribute: random elements of a result become zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

SCALARS = frozenset({Arg.DROPOUT_PROBABILITY, Arg.DROPOUT_SEED, Arg.DROPOUT_OFFSET})
"""The arguments of one value each."""


@dataclass(frozen=True, slots=True)
class Dropout:
    """Which elements of dst become zero, before post-ops; the others are divided by 1 - P.

    An execution takes the probability P, the seed of type ``seed_type`` and, with ``use_offset``,
    the offset of the random numbers, one value each, in the host's memory with
    ``use_host_scalars``. It writes ``mask_desc``, 1 for what survives, unless that is the zero
    descriptor.
    """

    mask_desc: MemoryDesc
    seed_type: DataType
    use_offset: bool
    use_host_scalars: bool

    @property
    def descs(self) -> Mapping[int, MemoryDesc]:
        """What an execution reads and writes, by argument."""
        types: dict[int, DataType] = {
            Arg.DROPOUT_PROBABILITY: DataType.f32,
            Arg.DROPOUT_SEED: self.seed_type,
        }
        if self.use_offset:
            types[Arg.DROPOUT_OFFSET] = DataType.s64
        descs = {argument: MemoryDesc((1,), data_type) for argument, data_type in types.items()}
        return descs if self.mask_desc.is_zero else {**descs, Arg.DROPOUT_MASK: self.mask_desc}

    def __str__(self) -> str:
        tag = self.mask_desc.verbose_tag
        return f"{tag}:{self.seed_type}:{self.use_offset:d}:{self.use_host_scalars:d}"
