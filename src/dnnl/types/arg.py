"""Execution arguments: the integer keys of the dictionary that ``execute`` takes."""

from __future__ import annotations

import enum
import operator
import re

from dnnl.errors import InvalidArguments
from dnnl.types.kinds import nearest


class Arg(enum.IntEnum):
    """What a memory means to a primitive.

    Members are integers: ``Arg.SCALES | Arg.SRC`` is the key of the scales of the source, and
    a plain integer finds the same dictionary entry. :func:`name_of` reads such a key back.
    """

    SRC = 1
    SRC_0 = 1
    SRC_LAYER = 1
    FROM = 1
    SRC_1 = 2
    SRC_ITER = 2
    SRC_2 = 3
    SRC_ITER_C = 3
    SRC_3 = 4
    AUGRU_ATTENTION = 4
    DST = 17
    DST_0 = 17
    TO = 17
    DST_LAYER = 17
    DST_1 = 18
    DST_ITER = 18
    DST_2 = 19
    DST_ITER_C = 19
    WEIGHTS = 33
    WEIGHTS_0 = 33
    WEIGHTS_LAYER = 33
    WEIGHTS_1 = 34
    WEIGHTS_ITER = 34
    WEIGHTS_2 = 35
    WEIGHTS_PEEPHOLE = 35
    WEIGHTS_3 = 36
    WEIGHTS_PROJECTION = 36
    BIAS = 41
    REDUCE = 42
    MEAN = 49
    VARIANCE = 50
    SCALE = 51
    SHIFT = 52
    WORKSPACE = 64
    SCRATCHPAD = 80
    DIFF_SRC = 129
    DIFF_SRC_0 = 129
    DIFF_SRC_LAYER = 129
    DIFF_SRC_1 = 130
    DIFF_SRC_ITER = 130
    DIFF_SRC_2 = 131
    DIFF_SRC_ITER_C = 131
    DIFF_SRC_3 = 132
    DIFF_AUGRU_ATTENTION = 132
    DIFF_DST = 145
    DIFF_DST_0 = 145
    DIFF_DST_LAYER = 145
    DIFF_DST_1 = 146
    DIFF_DST_ITER = 146
    DIFF_DST_2 = 147
    DIFF_DST_ITER_C = 147
    DIFF_WEIGHTS = 161
    DIFF_WEIGHTS_0 = 161
    DIFF_WEIGHTS_LAYER = 161
    DIFF_WEIGHTS_1 = 162
    DIFF_WEIGHTS_ITER = 162
    DIFF_WEIGHTS_2 = 163
    DIFF_WEIGHTS_PEEPHOLE = 163
    DIFF_WEIGHTS_3 = 164
    DIFF_WEIGHTS_PROJECTION = 164
    DIFF_BIAS = 169
    DIFF_SCALE = 255
    DIFF_SHIFT = 256
    HINT_MAX_GROUP_SIZE = 384
    SEQUENCE_LENGTHS = 448
    DROPOUT_OFFSET = 507
    ROUNDING_SEED = 508
    DROPOUT_MASK = 509
    DROPOUT_PROBABILITY = 510
    DROPOUT_SEED = 511
    PRECOMPUTED_REDUCTIONS = 512
    MULTIPLE_SRC = 1024
    MULTIPLE_DST = 2048
    SCALES = 4096
    ATTR_SCALES = 4096
    ZERO_POINTS = 8192
    ATTR_ZERO_POINTS = 8192
    POST_OP_DW = 16384
    ATTR_POST_OP_DW = 16384

    @classmethod
    def _missing_(cls, value: object) -> Arg:
        """Find what is no value: a name; anything else raises InvalidArguments."""
        member = cls.__members__.get(value) if isinstance(value, str) else None
        if member is None:
            hint = nearest(value, cls.__members__) if isinstance(value, str) else ""
            raise InvalidArguments("arg", value, "expected a member of Arg or its name", hint)
        return member

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Arg.{self.name}"

    @staticmethod
    def post_op(index: int) -> int:
        """Return the flag of post-op ``index``: ``Arg.post_op(0) | Arg.SRC_1``."""
        return _POST_OP * (_read_index(index, MAX_POST_OPS) + 1)

    @staticmethod
    def multiple_src(index: int) -> int:
        """Return the key of source ``index`` of an operation with any number of sources."""
        return int(Arg.MULTIPLE_SRC) + _read_index(index, _MAX_MULTIPLE)

    @staticmethod
    def multiple_dst(index: int) -> int:
        """Return the key of destination ``index`` of an operation with any number of them."""
        return int(Arg.MULTIPLE_DST) + _read_index(index, _MAX_MULTIPLE)

    @staticmethod
    def part(argument: int, number: int) -> int:
        """Return the key under which a kernel takes buffer ``number`` of a tensor with an encoding;
        the first one is taken as the tensor itself."""
        return int(argument) + _PART * _read_index(number, _MAX_PARTS)


def owner_of(argument: int) -> tuple[int, int]:
    """Return the argument of a tensor, and which of its buffers a key of `Arg.part` means."""
    number, owner = divmod(int(argument), _PART)
    return owner, number


MAX_POST_OPS = 32
"""The most post-ops of an attribute."""

GRADIENT = Arg.DIFF_SRC - Arg.SRC
"""What is added to the argument of a tensor for that of its gradient."""

_POST_OP = 32768
_PART = _POST_OP * 64
"""The bits above the flags of all post-ops: the index of a buffer."""
_MAX_PARTS = 4
_MAX_MULTIPLE = Arg.MULTIPLE_DST - Arg.MULTIPLE_SRC
"""How many sources, or destinations, have ids of their own."""
_FLAGS = (Arg.POST_OP_DW, Arg.ZERO_POINTS, Arg.SCALES)
_COUNTED = (Arg.MULTIPLE_DST, Arg.MULTIPLE_SRC)
_MAX_SRC = 16
"""Operand ``j`` of a post-op is ``Arg.SRC_1 + j``; the ids below ``Arg.DST`` are free for it."""
_NAMES = {int(member): member.name for member in Arg}


def _read_index(index: object, count: int) -> int:
    """Return an index below ``count``, checked."""
    try:
        number = operator.index(index)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < count:
        raise InvalidArguments("index", index, f"expected an integer of 0..{count - 1}")
    return number


def name_of(arg: int) -> str:
    """Return the readable name of an execution argument.

    ``SCALES|SRC``, ``post_op(0)|SRC_1``, ``MULTIPLE_SRC+2``; a number that means nothing is
    returned as its digits.
    """
    rest = int(arg)
    if rest <= 0:
        return str(rest)
    parts = []
    buffer, rest = divmod(rest, _PART)
    index, rest = divmod(rest, _POST_OP)
    if index:
        parts.append(f"post_op({index - 1})")
    for flag in _FLAGS:
        if rest & flag:
            rest -= flag
            parts.insert(0, flag.name)
    for base in _COUNTED:
        if rest & base:
            parts.append(f"{base.name}+{rest - base}")
            rest = 0
    if rest & Arg.PRECOMPUTED_REDUCTIONS:
        parts.append(Arg.PRECOMPUTED_REDUCTIONS.name)
        rest -= Arg.PRECOMPUTED_REDUCTIONS
    if rest:
        known = _NAMES.get(rest)
        parts.append(known or (f"SRC_{rest - 1}" if rest <= _MAX_SRC else str(rest)))
    return "|".join(parts) + (f".parts[{buffer}]" if buffer else "")


_INDEXED = re.compile(r"post_op\((\d{1,9})\)|MULTIPLE_(SRC|DST)\+(\d{1,9})")


def _read_name(name: str) -> int | None:
    """Return the integer of one part of `name_of`'s text; None if it is none."""
    indexed = _INDEXED.fullmatch(name)
    if indexed is None:
        return Arg.__members__.get(name)
    post_op, end, index = indexed.groups()
    if end is None:
        return Arg.post_op(int(post_op))
    return Arg.multiple_src(int(index)) if end == "SRC" else Arg.multiple_dst(int(index))


def coerce_arg(value: object, argument: str) -> int:
    """Return the integer of an execution argument given as a member, an integer or a name.

    Names combine as :func:`name_of` writes them (``"SCALES|SRC"``).
    """
    if isinstance(value, str):
        total = 0
        for name in map(str.strip, value.split("|")):
            part = _read_name(name)
            if part is None:
                hint = nearest(name, Arg.__members__)
                raise InvalidArguments(argument, value, "expected an Arg or its name", hint)
            total |= part
        return total
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number <= 0:
        raise InvalidArguments(argument, value, "expected an Arg, its name or a positive integer")
    return number
