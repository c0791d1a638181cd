"""How far values are from those that were meant."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dnnl.reference.arrays import Array

NO_ERROR_DB = 200.0
"""The ratio of signal to noise where there is no noise."""


@dataclass(frozen=True)
class Error:
    """``relative``: the L2 norm of the difference by that of what was meant. ``largest``: the
    largest difference of an element."""

    relative: float
    largest: float

    @staticmethod
    def of(got: Array, meant: Array) -> Error:
        """The error of ``got``; both have one shape."""
        difference = np.abs(got - meant)
        noise, signal = float(np.linalg.norm(difference)), float(np.linalg.norm(meant))
        relative = noise / signal if signal else (math.inf if noise else 0.0)
        return Error(relative, float(difference.max(initial=0.0)))

    @property
    def snr(self) -> float:
        """Signal to noise, in dB; 20 dB are a tenth of the signal, 40 a hundredth."""
        if not self.relative:
            return NO_ERROR_DB
        return min(NO_ERROR_DB, -20 * math.log10(self.relative))

    def __str__(self) -> str:
        return f"{self.relative:.2%} ({self.snr:.1f} dB), {self.largest:.3g} at most"
