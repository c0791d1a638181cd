"""The facts about a vector unit that the generators ask for, one frozen row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from llvmlite import ir

from dnnl.codegen.isa.caches import Caches


@dataclass(frozen=True)
class Device:
    """How kernels are started that do not run on a processor.

    ``target`` is the kind of their images, which are objects, or the ``text`` of an assembler.
    LLVM writes them in a process of its own each where it must be ``apart``.
    ``convention`` is LLVM's name for the calling convention of an entry point, ``memory`` the
    address space in which tensors lie. ``item`` writes code for the number (i64) of the work item
    that a started entry point is to do.
    """

    target: str
    convention: str
    item: Callable[[ir.IRBuilder], ir.Value] = field(repr=False)
    text: bool = False
    apart: bool = False
    memory: int = 1


@dataclass(frozen=True)
class Isa:
    """One instruction set level of one architecture.

    ``vector_bits`` and ``registers`` size vectors and register tiles. ``fma`` says whether a fused
    multiply-add is one instruction: where it is not, LLVM would call a library function. ``masked``
    says whether loads and stores of 32 bits and more take a mask natively, ``masked_bytes`` whether
    those of smaller elements do, ``rounding`` whether rounding to integers is
    one instruction, ``exponents`` whether taking exponents out and putting them in is, ``half``
    whether converting between f16 and f32 is, ``bfloat`` whether rounding f32 to bf16 is, but for
    denormals, which are taken for zero, ``lookup`` whether picking elements of a register by those
    of another is, for 16 and 32 bits. ``dot`` names the native products of low-precision
    types, as ``"u8s8"`` or ``"bf16"``. ``caches`` are what a machine of this level has at least.
    ``device`` is None for processors.
    """

    name: str
    arch: str
    triple: str
    cpu: str
    features: tuple[str, ...]
    vector_bits: int
    registers: int
    fma: bool
    masked: bool
    masked_bytes: bool = False
    rounding: bool = True
    exponents: bool = False
    half: bool = True
    bfloat: bool = False
    lookup: bool = False
    dot: tuple[str, ...] = ()
    caches: Caches = field(default_factory=Caches)
    device: Device | None = None

    def __post_init__(self) -> None:
        if self.vector_bits < 32 or self.vector_bits & (self.vector_bits - 1):
            raise ValueError(f"{self.name}: vector_bits must be a power of two of at least 32")
        if self.registers < 4:
            raise ValueError(f"{self.name}: a register tile needs at least 4 registers")

    @property
    def lanes(self) -> int:
        """How many f32 values one vector register holds."""
        return self.vector_bits // 32

    @property
    def target(self) -> str:
        """The kind of images with code of this row."""
        return "cpu" if self.device is None else self.device.target

    @property
    def feature_string(self) -> str:
        """The features in LLVM's notation, ``+a,+b``."""
        return ",".join(f"+{feature}" for feature in self.features)
