"""Primitive attributes: how a primitive computes, not what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Generic, TypeVar

from dnnl.errors import InvalidArguments
from dnnl.onednn import Property
from dnnl.types.arg import Arg, coerce_arg, name_of
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.kinds import (
    AccumulationMode,
    FpmathMode,
    Kind,
    QuantizationMode,
    RoundingMode,
    ScratchpadMode,
    coerce,
    nearest,
)
from dnnl.types.layout_input import read_bool
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOps
from dnnl.types.rnn_qparams import GATES_AND_UNITS, UNITS, RnnQparams, WeightsScales
from dnnl.types.scales import ScaleSpec, check_computed, read_spec

K = TypeVar("K", bound=Kind)

_SCALE_TYPES = ("f32", "bf16", "f16", "e8m0", "f8_e4m3")
_ZERO_POINT_TYPES = ("s32", "s8", "u8", "s4", "u4")
_REDUCTION_TYPES = ("s32",)
_SEED_TYPES = ("s32", "s64")
_ROUNDED = (Arg.DST, Arg.DIFF_SRC, Arg.DIFF_WEIGHTS)
_VERBOSE_NAMES = {
    int(Arg.SRC): "src0",
    int(Arg.SRC_1): "src1",
    int(Arg.WEIGHTS): "wei",
    int(Arg.WEIGHTS_ITER): "wei_iter",
    int(Arg.WEIGHTS_PROJECTION): "wei_proj",
    int(Arg.DST): "dst",
    Arg.POST_OP_DW | Arg.WEIGHTS: "attr_post_op_dw_wei",
    Arg.POST_OP_DW | Arg.DST: "attr_post_op_dw_dst",
}


class _Choice(Generic[K]):
    """An attribute that holds a member of an enum and may be set by its name."""

    def __init__(self, enum_class: type[K]) -> None:
        self.enum_class = enum_class

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.slot = name, f"_{name}"

    def __get__(self, instance: object, owner: type | None = None) -> K:
        if instance is None:
            raise AttributeError(f"{self.name} belongs to an instance")
        value: K = instance.__dict__[self.slot]
        return value

    def __set__(self, instance: object, value: K | str) -> None:
        instance.__dict__[self.slot] = coerce(self.enum_class, value, self.name)


class _Switch:
    """An attribute that is true or false."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.slot = name, f"_{name}"

    def __get__(self, instance: object, owner: type | None = None) -> bool:
        if instance is None:
            raise AttributeError(f"{self.name} belongs to an instance")
        value: bool = instance.__dict__[self.slot]
        return value

    def __set__(self, instance: object, value: bool) -> None:
        instance.__dict__[self.slot] = read_bool(self.name, value)


_SETTABLE = (
    "scratchpad_mode",
    "fpmath_mode",
    "accumulation_mode",
    "deterministic",
    "fpmath_apply_to_int",
    "post_ops",
)


class PrimitiveAttr(Property):
    """The attributes of a primitive.

    ``scratchpad_mode`` says who provides temporary memory, ``fpmath_mode`` to what f32 may be
    narrowed for computing (integer weights too with ``fpmath_apply_to_int``),
    ``accumulation_mode`` the type of sums, ``deterministic`` asks for bitwise equal results from
    run to run. Scales, zero points, precomputed reductions, dropout, rounding and post-ops are
    added by the methods. A primitive description takes a copy, so later changes have no effect on
    it.

    Sums are always those of ``strict``, in f32 for floats and s32 for integers, which are at
    least as precise as those of any other ``accumulation_mode``.
    """

    scratchpad_mode = _Choice(ScratchpadMode)
    fpmath_mode = _Choice(FpmathMode)
    accumulation_mode = _Choice(AccumulationMode)
    deterministic = _Switch()
    fpmath_apply_to_int = _Switch()
    post_ops: PostOps

    def __init__(
        self,
        scratchpad_mode: ScratchpadMode | str = ScratchpadMode.library,
        fpmath_mode: FpmathMode | str = FpmathMode.strict,
        deterministic: bool = False,
        *,
        fpmath_apply_to_int: bool = False,
        accumulation_mode: AccumulationMode | str = AccumulationMode.strict,
    ) -> None:
        self.scratchpad_mode = scratchpad_mode
        self.fpmath_mode = fpmath_mode
        self.accumulation_mode = accumulation_mode
        self.deterministic = deterministic
        self.fpmath_apply_to_int = fpmath_apply_to_int
        self.post_ops = PostOps()
        self._scales: dict[int, ScaleSpec] = {}
        self._zero_points: dict[int, ScaleSpec] = {}
        self._reductions: dict[int, ScaleSpec] = {}
        self._dropout: Dropout | None = None
        self._rounding: dict[int, RoundingMode] = {}
        self._rnn_qparams = RnnQparams()

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; a name that is none would have no effect, so it is refused."""
        if name not in _SETTABLE and not name.startswith("_"):
            rule = "PrimitiveAttr has no such attribute to set"
            raise InvalidArguments(name, value, rule, nearest(name, _SETTABLE))
        if name == "post_ops" and not isinstance(value, PostOps):
            rule = "expected PostOps"
            raise InvalidArguments(name, value, rule, "with_post_ops takes a list of entries")
        object.__setattr__(self, name, value)

    @property
    def scales(self) -> Mapping[int, ScaleSpec]:
        """The scales by argument id; the values come at execution, as ``Arg.SCALES | id``."""
        return MappingProxyType(self._scales)

    @property
    def zero_points(self) -> Mapping[int, ScaleSpec]:
        """The zero points by argument id; the values come as ``Arg.ZERO_POINTS | id``."""
        return MappingProxyType(self._zero_points)

    def set_scales(
        self,
        arg: Arg | int | str,
        mask: int = 0,
        groups: Sequence[int] = (),
        data_type: DataTypeLike = "f32",
        quantization_mode: QuantizationMode | str = QuantizationMode.static_sazp,
    ) -> None:
        """Scale an argument: sources and weights are multiplied, destinations divided.

        ``data_type`` is f32, bf16, f16, e8m0 or f8_e4m3; the last two need a mask.

        Scales of DST whose ``quantization_mode`` is dynamic are written by the execution, one for
        each group of the last dimension, with a ``mask`` of all dimensions. ``dynamic_mx`` has e8m0
        and ``groups`` of (1, 32): the largest power of two in the group by that in the numbers of
        dst. ``dynamic_fp`` has f8_e4m3 and groups of (1, 16): the largest magnitude by the largest
        number of dst. Larger values saturate.
        """
        spec = read_spec(mask, groups, data_type, _SCALE_TYPES)
        mode = coerce(QuantizationMode, quantization_mode, "quantization_mode")
        spec = replace(spec, mode=mode)
        if spec.computed:
            check_computed(coerce_arg(arg, "arg"), spec)
        if spec.mask == 0 and spec.data_type.bits < 16:
            rule = f"one scale for the whole tensor cannot be {spec.data_type}"
            raise InvalidArguments("mask", 0, rule, "use f32, or a mask that is not 0")
        self._scales[coerce_arg(arg, "arg")] = spec

    def set_zero_points(
        self,
        arg: Arg | int | str,
        mask: int = 0,
        groups: Sequence[int] = (),
        data_type: DataTypeLike = "s32",
    ) -> None:
        """Set the integer of an argument that means 0. ``data_type`` is s32, s8, u8, s4 or u4."""
        spec = read_spec(mask, groups, data_type, _ZERO_POINT_TYPES)
        self._zero_points[coerce_arg(arg, "arg")] = spec

    @property
    def precomputed_reductions(self) -> Mapping[int, ScaleSpec]:
        """The sums of a source by argument id; they come as ``Arg.PRECOMPUTED_REDUCTIONS | id``."""
        return MappingProxyType(self._reductions)

    def set_precomputed_reductions(
        self,
        arg: Arg | int | str,
        mask: int,
        groups: Sequence[int] = (),
        data_type: DataTypeLike = "s32",
    ) -> None:
        """Give the sums of each row of SRC, s32, which zero points of the weights of a product of
        integers are multiplied by, instead of having them computed.

        ``mask`` has every dimension; with ``groups`` of (1, g) there is one sum for g neighbours
        in a row, and g divides the groups of all scales and zero points along the row.
        """
        argument = coerce_arg(arg, "arg")
        if argument != Arg.SRC:
            raise InvalidArguments("arg", name_of(argument), "sums are those of SRC")
        self._reductions[argument] = read_spec(mask, groups, data_type, _REDUCTION_TYPES)

    @property
    def dropout(self) -> Dropout | None:
        """The dropout; probability, seed and offset come at execution, as
        ``Arg.DROPOUT_PROBABILITY`` and the like."""
        return self._dropout

    def set_dropout(
        self,
        mask_desc: MemoryDesc | None = None,
        seed_data_type: DataTypeLike = "s64",
        use_offset: bool = False,
        use_host_scalars: bool = False,
    ) -> None:
        """Make random elements of dst zero, before the post-ops, and scale up the others.

        Each survives with probability 1 - P and is divided by that. An execution gets P, f32,
        as ``Arg.DROPOUT_PROBABILITY`` and the seed, s32 or s64, as ``Arg.DROPOUT_SEED``, and with
        ``use_offset`` also ``Arg.DROPOUT_OFFSET``, s64: memories of one element. If there is a
        ``mask_desc``, ``Arg.DROPOUT_MASK`` becomes 1 where an element survives and 0 elsewhere: u8,
        with the dims of dst, in any layout, ``any`` for that of dst. ``use_host_scalars`` says that
        P, seed and offset are in the host's memory, as they always are on the cpu.
        """
        mask = MemoryDesc.zero() if mask_desc is None else mask_desc
        if not isinstance(mask, MemoryDesc):
            raise InvalidArguments("mask_desc", mask, "expected a dnnl.MemoryDesc or None")
        if not mask.is_zero and mask.data_type is not DataType.u8:
            raise InvalidArguments("mask_desc", str(mask), "the mask of a dropout is u8")
        seed = coerce(DataType, seed_data_type, "seed_data_type")
        if seed.name not in _SEED_TYPES:
            rule = f"expected one of {', '.join(_SEED_TYPES)}"
            raise InvalidArguments("seed_data_type", str(seed), rule)
        self._dropout = Dropout(
            mask,
            seed,
            read_bool("use_offset", use_offset),
            read_bool("use_host_scalars", use_host_scalars),
        )

    @property
    def rounding_modes(self) -> Mapping[int, RoundingMode]:
        """How results are rounded, by argument id; those that are missing to the nearest number."""
        return MappingProxyType(self._rounding)

    def set_rounding_mode(self, arg: Arg | int | str, mode: RoundingMode | str) -> None:
        """Round a result, DST, DIFF_SRC or DIFF_WEIGHTS, to the nearest number (``environment``) or
        at random (``stochastic``), which takes a seed at execution: one s32 as
        ``Arg.ROUNDING_SEED``."""
        argument = coerce_arg(arg, "arg")
        if argument not in _ROUNDED:
            rule = f"expected {', '.join(map(str, _ROUNDED[:-1]))} or {_ROUNDED[-1]}"
            raise InvalidArguments("arg", name_of(argument), rule)
        if coerce(RoundingMode, mode, "mode") is RoundingMode.stochastic:
            self._rounding[argument] = RoundingMode.stochastic
        else:
            self._rounding.pop(argument, None)

    @property
    def rnn_qparams(self) -> RnnQparams:
        """The quantization of a recurrent network of integers."""
        return self._rnn_qparams

    def set_rnn_data_qparams(self, scale: float, shift: float) -> None:
        """Say that inputs and states of a recurrent network that are u8 or s8 are stored as
        x ``scale`` + ``shift``, rounded. The scale is positive, the shift from -1024 to 1024."""
        scale, shift = RnnQparams.read_data(scale, shift)
        self._rnn_qparams = replace(self._rnn_qparams, scale=scale, shift=shift)

    def set_rnn_weights_qparams(self, mask: int, scales: Sequence[float] | float) -> None:
        """Say that weights of a recurrent network that are s8 are stored as w times a scale: one
        with a ``mask`` of 0, or one for each gate and unit, row-major, with 24."""
        found = WeightsScales.read(mask, scales, GATES_AND_UNITS)
        self._rnn_qparams = replace(self._rnn_qparams, weights=found)

    def set_rnn_weights_projection_qparams(
        self, mask: int, scales: Sequence[float] | float
    ) -> None:
        """Say the same of the weights of a projection, with a mask of 0, or of 8 for a scale of
        each output."""
        found = WeightsScales.read(mask, scales, UNITS)
        self._rnn_qparams = replace(self._rnn_qparams, projection=found)

    def copy(self) -> PrimitiveAttr:
        """Return an independent attribute with the same contents."""
        return self.with_post_ops(self.post_ops)

    def with_post_ops(self, entries: Iterable[PostOp]) -> PrimitiveAttr:
        """Return an independent attribute with other post-ops."""
        return self.with_layouts(entries, self._dropout)

    def with_layouts(self, entries: Iterable[PostOp], dropout: Dropout | None) -> PrimitiveAttr:
        """Return an independent attribute with other post-ops and another dropout."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._scales, made._zero_points = dict(self._scales), dict(self._zero_points)
        made._reductions = dict(self._reductions)
        made.post_ops, made._dropout = PostOps(entries), dropout
        made._rounding = dict(self._rounding)
        return made

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that the attribute says, as a hashable value: equal keys, equal attributes."""
        return (
            self.scratchpad_mode,
            self.fpmath_mode,
            self.fpmath_apply_to_int,
            self.accumulation_mode,
            self.deterministic,
            tuple(sorted(self._scales.items(), key=_by_arg)),
            tuple(sorted(self._zero_points.items(), key=_by_arg)),
            tuple(self._reductions.items()),
            self._dropout,
            tuple(sorted(self._rounding)),
            self._rnn_qparams,
            tuple(self.post_ops),
        )

    def non_default(self) -> frozenset[str]:
        """Return the names of what is set, for an implementation to see what it must support.

        Out of scratchpad_mode, fpmath_mode, accumulation_mode, deterministic, scales,
        zero_points, precomputed_reductions, dropout, rounding_mode, rnn_qparams and
        post_ops.
        """
        facts = {
            "scratchpad_mode": self.scratchpad_mode is not ScratchpadMode.library,
            "fpmath_mode": self.fpmath_mode is not FpmathMode.strict or self.fpmath_apply_to_int,
            "accumulation_mode": self.accumulation_mode is not AccumulationMode.strict,
            "deterministic": self.deterministic,
            "scales": bool(self._scales),
            "zero_points": bool(self._zero_points),
            "precomputed_reductions": bool(self._reductions),
            "dropout": self._dropout is not None,
            "rounding_mode": bool(self._rounding),
            "rnn_qparams": self._rnn_qparams != RnnQparams(),
            "post_ops": len(self.post_ops) > 0,
        }
        return frozenset(name for name, is_set in facts.items() if is_set)

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, PrimitiveAttr) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        """Return the attributes of a verbose line; empty where nothing is set."""
        set_here = self.non_default()
        texts = {
            "scratchpad_mode": f"scratchpad:{self.scratchpad_mode}",
            "fpmath_mode": f"fpmath:{self.fpmath_mode}" + ":true" * self.fpmath_apply_to_int,
            "accumulation_mode": f"acc-mode:{self.accumulation_mode}",
            "deterministic": "deterministic:1",
            "scales": f"scales:{_joined(self._scales)}",
            "zero_points": f"zero-points:{_joined(self._zero_points)}",
            "precomputed_reductions": f"precomputed-reductions:{_joined(self._reductions)}",
            "dropout": f"dropout:{self._dropout}",
            "rounding_mode": f"rounding-mode:{_rounded(self._rounding)}",
            "post_ops": f"post-ops:{self.post_ops}",
        }
        parts = [f"attr-{text}" for name, text in texts.items() if name in set_here]
        return " ".join([*parts, *self._rnn_qparams.attributes])

    def __repr__(self) -> str:
        return f"<PrimitiveAttr {str(self) or 'default'}>"


def _by_arg(item: tuple[int, ScaleSpec]) -> int:
    return item[0]


def _joined(specs: Mapping[int, ScaleSpec]) -> str:
    """Return the specs as a verbose line has them, in the order of their argument ids."""
    return "+".join(
        f"{_verbose_name(arg)}:{spec}" for arg, spec in sorted(specs.items(), key=_by_arg)
    )


def _rounded(modes: Mapping[int, RoundingMode]) -> str:
    """Return the modes as a verbose line has them."""
    return "+".join(f"{_verbose_name(arg)}:{mode}" for arg, mode in sorted(modes.items()))


def _verbose_name(arg: int) -> str:
    """Return the short name of an argument that verbose lines use."""
    if arg & Arg.MULTIPLE_SRC:
        return f"msrc{arg - Arg.MULTIPLE_SRC}"
    return _VERBOSE_NAMES.get(arg) or name_of(arg).lower()
