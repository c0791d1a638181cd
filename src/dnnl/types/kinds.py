"""The enumerations of the library, and the one function that reads them from users.

Values are those of the specification, so numbers in other libraries' logs and files mean the same.
Wherever an enum member is expected, its name is accepted too: see :func:`coerce`.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Sequence
from typing import TypeVar

from dnnl.errors import InvalidArguments
from dnnl.onednn import Property

RUNTIME_DIM = -(2**63)
"""A dimension or stride that is known only when a primitive executes."""


def sizes_text(sizes: Sequence[int]) -> str:
    """Return sizes as the expression of a tuple that gives them."""
    return repr(tuple(sizes)).replace(repr(RUNTIME_DIM), "RUNTIME_DIM")


def float_text(value: float) -> str:
    """Return a number with six digits, as C++ streams print it, or with all that it needs.

    There is no plus sign in it, since that joins the parts of an attribute.
    """
    short = f"{value:g}"
    exact = short if float(short) == value else repr(float(value)).removesuffix(".0")
    return exact.replace("e+", "e")


class _Named:
    """Print a member as its name, and represent it as the expression that gives it."""

    name: str

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class Kind(_Named, Property, enum.Enum):
    """Base of plain enums; members hash by identity, which needs no Python call.

    Called with a name or a value a class returns the member: ``DataType("f32")``.
    """

    __hash__ = object.__hash__

    @classmethod
    def _missing_(cls, value: object) -> Kind:
        """Find what is no value: a name; anything else raises InvalidArguments."""
        return coerce(cls, value, "value")

    @classmethod
    def foreign(cls, value: object) -> Kind | None:
        """The member that equals an object of another library, if there is one."""
        return None


class PropKind(Kind):
    """What a primitive propagates, and in which direction."""

    forward_training = 64
    forward = 64
    forward_inference = 96
    backward = 128
    backward_data = 160
    backward_weights = 192
    backward_bias = 193

    @property
    def is_forward(self) -> bool:
        """Whether the primitive computes its dst (as opposed to a gradient)."""
        return self in (PropKind.forward_training, PropKind.forward_inference)


class Alg(Kind):
    """The algorithm or elementary function of a primitive or post-op."""

    convolution_direct = 0x1
    convolution_winograd = 0x2
    convolution_auto = 0x3
    deconvolution_direct = 0xA
    deconvolution_winograd = 0xB
    eltwise_relu = 0x20
    eltwise_tanh = 0x21
    eltwise_elu = 0x22
    eltwise_square = 0x23
    eltwise_abs = 0x24
    eltwise_sqrt = 0x25
    eltwise_linear = 0x26
    eltwise_soft_relu = 0x27
    eltwise_hardsigmoid = 0x28
    eltwise_logistic = 0x29
    eltwise_exp = 0x2A
    eltwise_gelu_tanh = 0x2B
    eltwise_swish = 0x2C
    eltwise_log = 0x2D
    eltwise_clip = 0x2E
    eltwise_clip_v2 = 0x2F
    eltwise_pow = 0x30
    eltwise_gelu_erf = 0x31
    eltwise_round = 0x32
    eltwise_mish = 0x33
    eltwise_hardswish = 0x34
    eltwise_relu_use_dst_for_bwd = 0x100
    eltwise_tanh_use_dst_for_bwd = 0x101
    eltwise_elu_use_dst_for_bwd = 0x102
    eltwise_sqrt_use_dst_for_bwd = 0x103
    eltwise_logistic_use_dst_for_bwd = 0x104
    eltwise_exp_use_dst_for_bwd = 0x105
    eltwise_clip_v2_use_dst_for_bwd = 0x106
    pooling_max = 0x1FF
    pooling_avg_include_padding = 0x2FF
    pooling_avg_exclude_padding = 0x3FF
    lrn_across_channels = 0xAFF
    lrn_within_channel = 0xBFF
    vanilla_rnn = 0x1FFF
    vanilla_lstm = 0x2FFF
    vanilla_gru = 0x3FFF
    lbr_gru = 0x4FFF
    vanilla_augru = 0x5FFF
    lbr_augru = 0x6FFF
    binary_add = 0x1FFF0
    binary_mul = 0x1FFF1
    binary_max = 0x1FFF2
    binary_min = 0x1FFF3
    binary_div = 0x1FFF4
    binary_sub = 0x1FFF5
    binary_ge = 0x1FFF6
    binary_gt = 0x1FFF7
    binary_le = 0x1FFF8
    binary_lt = 0x1FFF9
    binary_eq = 0x1FFFA
    binary_ne = 0x1FFFB
    binary_select = 0x1FFFC
    resampling_nearest = 0x2FFF0
    resampling_linear = 0x2FFF1
    reduction_max = 0x2FFF2
    reduction_min = 0x2FFF3
    reduction_sum = 0x2FFF4
    reduction_mul = 0x2FFF5
    reduction_mean = 0x2FFF6
    reduction_norm_lp_max = 0x2FFF7
    reduction_norm_lp_sum = 0x2FFF8
    reduction_norm_lp_power_p_max = 0x2FFF9
    reduction_norm_lp_power_p_sum = 0x2FFFA
    softmax_accurate = 0x30000
    softmax_log = 0x30001
    eltwise_function = 0x40000
    """A Python function, where the others have numbers of oneDNN's."""

    @property
    def is_eltwise(self) -> bool:
        """Whether this is a function of one value that its name and two numbers tell."""
        return self.name.startswith("eltwise_") and self is not Alg.eltwise_function

    @property
    def is_binary(self) -> bool:
        """Whether this is a function of two values (three for ``binary_select``)."""
        return self.name.startswith("binary_")

    @property
    def uses_dst(self) -> bool:
        """Whether the backward pass of an eltwise function reads dst in place of src."""
        return self.name.endswith("_use_dst_for_bwd")


class _Flags(_Named, enum.IntFlag):
    """Base of sets of flags; members combine with ``|``."""

    @classmethod
    def _missing_(cls, value: object) -> _Flags | None:
        """Find what is no value: names joined by ``|``; others raise InvalidArguments."""
        if not isinstance(value, int):
            return coerce(cls, value, "value")
        found: _Flags | None = super()._missing_(value)
        return found

    @classmethod
    def alphabet(cls) -> str:
        """The letter of each flag in verbose lines, in their order."""
        raise NotImplementedError

    @property
    def letters(self) -> str:
        """The flags as verbose lines write them."""
        named = zip(type(self), self.alphabet(), strict=True)
        return "".join(letter for flag, letter in named if flag in self)

    def __str__(self) -> str:
        names = "|".join(flag.name for flag in type(self) if flag in self)
        return names or next(name for name, flag in type(self).__members__.items() if not flag)

    def __repr__(self) -> str:
        name = type(self).__name__
        return "|".join(f"{name}.{flag}" for flag in str(self).split("|"))


class NormFlags(_Flags):
    """Optional inputs and fusions of a normalization; members combine with ``|``."""

    none = 0
    use_global_stats = 1
    use_scale = 2
    use_shift = 4
    fuse_norm_relu = 8
    fuse_norm_add_relu = 16
    rms_norm = 32

    @classmethod
    def alphabet(cls) -> str:
        """``GCH`` for global stats, scale and shift."""
        return "GCHRAM"


class RnnFlags(_Flags):
    """What the gradient of a recurrent network does with memory: those of weights are added to what
    it holds, unless they overwrite it."""

    undef = 0
    diff_weights_overwrite = 1

    @classmethod
    def alphabet(cls) -> str:
        """``O`` for overwrite."""
        return "O"


class FormatKind(Kind):
    """What a memory descriptor knows about the layout."""

    undef = 0
    any = 1
    blocked = 2
    opaque = 3
    sparse = 4


class FpmathMode(Kind):
    """The least precise type that f32 data may be converted to for computing."""

    strict = 0
    bf16 = 1
    f16 = 2
    any = 3
    tf32 = 4


class AccumulationMode(Kind):
    """How sums may be accumulated; ``strict`` means f32 for floats and s32 for integers."""

    strict = 0
    relaxed = 1
    any = 2
    s32 = 3
    f32 = 4
    f16 = 5


class QuantizationMode(Kind):
    """Where scales come from: from the user, or from the library, which computes those of dst from
    the largest magnitude of each group: powers of two of the microscaling formats (``dynamic_mx``)
    or small floats (``dynamic_fp``)."""

    static_sazp = 1
    dynamic_mx = 2
    dynamic_fp = 3


class RoundingMode(Kind):
    """How results are rounded: to the nearest number, or at random to one of the two neighbours."""

    environment = 0
    stochastic = 1


class ScratchpadMode(Kind):
    """Who provides the temporary memory of an execution."""

    library = 0
    user = 1


class Direction(Kind):
    """The direction in which a recurrent network walks over time."""

    unidirectional_left2right = 1
    unidirectional_right2left = 2
    bidirectional_concat = 3
    bidirectional_sum = 4


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint with the names closest to ``name``, or with all where none is close."""
    known = list(names)
    lower = {other.lower(): other for other in reversed(known)}
    if name.lower() in lower:
        return f"did you mean {lower[name.lower()]!r}?"
    # Who writes 'add' leaves out the family of 'binary_add'.
    close = [other for other in known if name and other.endswith(f"_{name}")]
    alike = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
    close += [lower[other] for other in alike]
    if not close:
        close = [other for other in known if name and name in other]
    close = list(dict.fromkeys(close))[:3]
    if close:
        return "did you mean " + " or ".join(repr(other) for other in close) + "?"
    shown = ", ".join(known[:12])
    return f"known: {shown}" + (", ..." if len(known) > 12 else "")


E = TypeVar("E", bound=enum.Enum)


def coerce(enum_class: type[E], value: object, argument: str) -> E:
    """Return the member of ``enum_class`` that ``value`` is or names.

    Flags also accept ``None`` (no flag), several names joined by ``|`` and the integer that
    the C library uses. Anything else raises InvalidArguments in the name of ``argument``.
    """
    if isinstance(value, enum_class):
        return value
    members = enum_class.__members__
    if isinstance(value, str):
        member = members.get(value)
        if member is not None:
            return member
    if issubclass(enum_class, enum.Flag):
        return _coerce_flags(enum_class, value, argument)
    stands_for = enum_class.foreign(value) if issubclass(enum_class, Kind) else None
    if isinstance(stands_for, enum_class):
        return stands_for
    rule = f"expected {enum_class.__name__}, as a member or its name"
    text = value if isinstance(value, str) else str(getattr(value, "name", value))
    raise InvalidArguments(argument, value, rule, nearest(text, members))


def _coerce_flags(enum_class: type[E], value: object, argument: str) -> E:
    """Read a set of flags; see :func:`coerce`."""
    rule = f"expected {enum_class.__name__}, their names joined by '|', or their integer"
    members = enum_class.__members__
    known = 0
    for member in members.values():
        known |= member.value
    if value is None or (isinstance(value, str) and not value):
        return enum_class(0)
    if isinstance(value, int) and not isinstance(value, bool):
        if 0 <= value <= known:
            return enum_class(int(value))
        raise InvalidArguments(argument, value, rule, f"the flags are {known}")
    if not isinstance(value, str):
        raise InvalidArguments(argument, value, rule, nearest("", members))
    total = 0
    for name in value.split("|"):
        if name.strip() not in members:
            raise InvalidArguments(argument, value, rule, nearest(name.strip(), members))
        total |= members[name.strip()].value
    return enum_class(total)
