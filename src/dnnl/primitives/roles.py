"""Roles that operations share whose tensors all have the dims of src."""

from __future__ import annotations

from collections.abc import Callable

from dnnl.language.case import CaseValues
from dnnl.primitives.operation import BACKWARD_DATA, FORWARD, Passes, Role
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

CaseDesc = Callable[[CaseValues], MemoryDesc]


def data_roles(
    src: CaseDesc,
    dst: CaseDesc,
    letters: str = "*",
    *,
    src_reads: Passes = FORWARD,
    dst_reads: Passes = frozenset(),
) -> tuple[Role, Role]:
    """src, read in the passes ``src_reads``, and dst, laid out as src, which ``dst_reads`` read."""
    return (
        Role(Arg.SRC, "src", "src_desc", reads=src_reads, letters=letters, case=src),
        Role(
            Arg.DST,
            "dst",
            "dst_desc",
            reads=dst_reads,
            writes=FORWARD,
            like=("src_desc",),
            letters=letters,
            case=dst,
        ),
    )


def gradient_roles(
    src: CaseDesc, dst: CaseDesc, letters: str = "*", *, like: tuple[str, ...] = ("src_desc",)
) -> tuple[Role, Role]:
    """The gradients of dst and of src, laid out as what the backward pass reads of the forward
    one: the first of the fields ``like`` that is there."""
    return (
        Role(
            Arg.DIFF_DST,
            "diff_dst",
            "diff_dst_desc",
            reads=BACKWARD_DATA,
            like=like,
            letters=letters,
            case=dst,
        ),
        Role(
            Arg.DIFF_SRC,
            "diff_src",
            "diff_src_desc",
            writes=BACKWARD_DATA,
            like=like,
            letters=letters,
            case=src,
        ),
    )
