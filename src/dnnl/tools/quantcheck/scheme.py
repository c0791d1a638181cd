"""Scales and zero points: what they do to values, and which ones would do better."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from dnnl.reference.arrays import Array, f64
from dnnl.tools.quantcheck.errors import Error
from dnnl.types.dtype import DataType

PERCENTILE = 99.99
WORTH_DB = 3.0
"""So many dB halve the noise; less is no reason to change a scale."""
_LITTLE = 0.4  # of a range: more than a bit is lost
_MANY = 0.02  # of the values
_SAMPLE = 2**17
_STEPS = np.geomspace(1.0, 0.05, 40)
"""The parts of the whole range that are tried for the least squared error."""


@dataclass(frozen=True, eq=False)
class Scheme:
    """A stored q means scale * (q - zero_point); both are broadcast to the tensor, of whose
    dimensions they have as many, or one value."""

    data_type: DataType
    scale: Array
    zero_point: Array

    @staticmethod
    def of(data_type: DataType, scale: ArrayLike, zero_point: ArrayLike = 0.0) -> Scheme:
        """With values of any kind."""
        return Scheme(data_type, f64(scale), f64(zero_point))

    def stored(self, values: Array) -> Array:
        """The integers for values."""
        kind = self.data_type
        return np.clip(np.rint(values / self.scale) + self.zero_point, kind.min, kind.max)

    def restored(self, stored: Array) -> Array:
        """The values of integers."""
        return self.scale * (stored - self.zero_point)

    def through(self, values: Array) -> Array:
        """What is left of values that are stored."""
        return self.restored(self.stored(values))

    def saturated(self, values: Array) -> float:
        """The share of values beyond what the type holds."""
        whole = np.rint(values / self.scale) + self.zero_point
        outside = (whole < self.data_type.min) | (whole > self.data_type.max)
        return float(np.count_nonzero(outside)) / max(1, values.size)

    def used(self, stored: Array) -> float:
        """The part of the range of the type that the integers fill; the least of the channels' is
        that of all."""
        away = np.abs(stored - self.zero_point)
        span = np.maximum(
            self.data_type.max - self.zero_point, self.zero_point - self.data_type.min
        )
        axes = _shared(self.scale, stored.ndim)
        return float((away.max(axis=axes, keepdims=True, initial=0.0) / span).max(initial=0.0))

    def __str__(self) -> str:
        low, high = float(self.scale.min()), float(self.scale.max())
        text = f"{low:.4g}" if self.scale.size == 1 else f"{low:.4g} to {high:.4g}"
        if not self.zero_point.any():
            return text
        return f"{text}, zero point {int(self.zero_point.min())}"


def _shared(scale: Array, ndim: int) -> tuple[int, ...]:
    """The dimensions along which a scale is the same."""
    if scale.size == 1:
        return tuple(range(ndim))
    return tuple(d for d in range(ndim) if scale.shape[d] == 1)


def candidates(values: Array, scheme: Scheme) -> Mapping[str, Scheme]:
    """Scales for values in the type of a scheme, by method: the whole range
    (``max-abs``), most of it (``percentile``), and the least squared error (``least squares``).

    They vary along the dimensions along which those of the scheme do. A zero point of 0 stays one,
    unless the type has no sign and the values have.
    """
    if scheme.scale.size == 1:
        values = _sampled(values)
        scheme = replace(
            scheme, scale=scheme.scale.reshape(1), zero_point=scheme.zero_point.reshape(-1)[:1]
        )
    axes = _shared(scheme.scale, values.ndim)
    centred = not scheme.zero_point.any() and (
        scheme.data_type.min < 0 or values.min(initial=0.0) >= 0
    )
    whole = _range(values, axes, 0.0)
    found = {
        "max-abs": _fitted(scheme, *whole, centred=centred),
        "percentile": _fitted(scheme, *_range(values, axes, 100 - PERCENTILE), centred=centred),
    }
    tried = [_fitted(scheme, *(part * end for end in whole), centred=centred) for part in _STEPS]
    return {**found, "least squares": _best(values, [*found.values(), *tried], axes)}


def _sampled(values: Array) -> Array:
    """Some of very many values, the least and the greatest among them."""
    flat = values.reshape(-1)
    if flat.size <= _SAMPLE:
        return flat
    return np.append(flat[:: -(-flat.size // _SAMPLE)], [flat.min(), flat.max()])


def _range(values: Array, axes: tuple[int, ...], out: float) -> tuple[Array, Array]:
    """The least and the greatest values, but for so many percent; 0 is within."""
    if out:
        low, high = np.percentile(values, [out, 100 - out], axis=axes, keepdims=True)
    else:
        low = values.min(axis=axes, keepdims=True, initial=0.0)
        high = values.max(axis=axes, keepdims=True, initial=0.0)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


def _fitted(scheme: Scheme, low: Array, high: Array, *, centred: bool) -> Scheme:
    """The scheme whose range is just the given one."""
    kind = scheme.data_type
    if centred:
        # The least integer of a signed type has no counterpart and stays unused.
        scale = np.maximum(np.abs(low), np.abs(high)) / kind.max
        return replace(scheme, scale=_positive(scale), zero_point=np.zeros_like(scale))
    scale = _positive((high - low) / (kind.max - kind.min))
    zero_point = np.clip(np.rint(kind.min - low / scale), kind.min, kind.max)
    return replace(scheme, scale=scale, zero_point=zero_point)


def _positive(scale: Array) -> Array:
    """A scale that is above 0 where all values are 0; as it is stored, in f32."""
    return f64(np.where(scale > 0, scale, 1.0).astype(np.float32))


def _best(values: Array, tried: list[Scheme], axes: tuple[int, ...]) -> Scheme:
    """Of each channel the scheme with the least squared error."""
    losses = np.stack(
        [np.square(each.through(values) - values).sum(axis=axes, keepdims=True) for each in tried]
    )
    winner = losses.argmin(axis=0)[np.newaxis]
    scale, zero_point = (
        np.take_along_axis(np.stack(parts), winner, axis=0)[0]
        for parts in ([each.scale for each in tried], [each.zero_point for each in tried])
    )
    return replace(tried[0], scale=scale, zero_point=zero_point)


@dataclass(frozen=True, eq=False)
class TensorReport:
    """What a scheme does to a tensor. ``role`` is src, weights or dst; ``tensor`` and ``scale`` are
    their names, the latter empty where it has none. ``saturated`` and ``used`` are shares; of
    ``advised`` schemes the last one has the least squared error, and ``advised_error``.
    Where the values are not ``known`` but for what was stored of them, nothing is advised, and
    ``saturated`` is the share of those at the ends of the range, less one for each scale."""

    role: str
    tensor: str
    scale: str
    scheme: Scheme
    saturated: float
    used: float
    error: Error
    advised: Mapping[str, Scheme]
    advised_error: Error
    known: bool = True

    @staticmethod
    def of_stored(
        role: str, tensor: str, scale: str, scheme: Scheme, stored: Array
    ) -> TensorReport:
        """Look at a tensor of which nothing else is left."""
        ends = (stored == scheme.data_type.min) | (stored == scheme.data_type.max)
        many = np.count_nonzero(ends) - scheme.scale.size  # each scale has a largest value
        share, none = max(0.0, many / max(1, stored.size)), Error(0.0, 0.0)
        used = scheme.used(stored)
        return TensorReport(role, tensor, scale, scheme, share, used, none, {}, none, known=False)

    @staticmethod
    def of(role: str, tensor: str, scale: str, scheme: Scheme, values: Array) -> TensorReport:
        """Look at all values of a tensor."""
        stored = scheme.stored(values)
        found = candidates(values, scheme) if values.size else {"least squares": scheme}
        best = found["least squares"]
        return TensorReport(
            role,
            tensor,
            scale,
            scheme,
            scheme.saturated(values),
            scheme.used(stored),
            Error.of(scheme.restored(stored), values),
            found,
            Error.of(best.through(values), values),
        )

    @property
    def best(self) -> Scheme:
        """The scheme that is advised."""
        return self.advised["least squares"]

    @property
    def ratio(self) -> float:
        """How many times as large the advised scale is; of several the one that is furthest off."""
        ratios = (self.best.scale / self.scheme.scale).reshape(-1)
        return float(ratios[np.abs(np.log(ratios)).argmax()])

    @property
    def gain(self) -> float:
        """The dB of signal to noise that the advised scale is better by."""
        return self.advised_error.snr - self.error.snr

    @property
    def is_bad(self) -> bool:
        """Whether another scale would halve the noise, or would have."""
        if self.known:
            return self.gain >= WORTH_DB
        return self.used < _LITTLE or self.saturated > _MANY

    def _guessed(self) -> str:
        if self.used < _LITTLE:
            part = f"{self.used:.0%} of the range of {self.scheme.data_type}"
            return f"only {part} is used, so it is about {1 / self.used:.3g} times too large"
        return f"{self.saturated:.2%} of the values are at the ends of the range: too small"

    def advice(self) -> Iterator[str]:
        """What is wrong, and what to do."""
        name = f"the scale of {self.role}" + (f" {self.scale!r}" if self.scale else "")
        if not self.known:
            yield f"{name}: {self._guessed()}; --float MODEL tells which one is right"
            return
        side, by = ("small", self.ratio) if self.ratio > 1 else ("large", 1 / self.ratio)
        many = "" if self.scheme.scale.size == 1 else " where it is furthest off"
        seen = f"{self.saturated:.2%} of its values saturate"
        if side == "large":
            seen = f"only {self.used:.0%} of the range of {self.scheme.data_type} is used"
        yield (
            f"{name} is {by:.3g} times too {side}{many}: {seen}. Take {self.best} instead of "
            f"{self.scheme}: {self.advised_error.snr:.1f} dB instead of {self.error.snr:.1f} dB."
        )
        others = [
            f"{method} {each}" for method, each in self.advised.items() if each is not self.best
        ]
        if others:
            yield f"other methods: {'; '.join(others)}"
