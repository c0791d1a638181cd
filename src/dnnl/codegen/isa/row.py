"""The facts about a vector unit that the generators ask for, one frozen row each."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

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
    own_process: bool = False
    memory: int = 1


@dataclass(frozen=True)
class Dot:
    """A product of vectors in one step: accumulator[i] += sum over j < group of
    a[i * group + j] * b[i * group + j].

    ``a``, ``b`` and ``accumulator`` name the types of the elements. ``instruction`` is LLVM's name
    of what does it, with the operands (accumulator, a, b), or (a, b) if it only multiplies and does
    not ``add``. Without a name it is multiplication and addition of the plain kind.
    """

    a: str
    b: str
    accumulator: str
    group: int = 1
    instruction: str = ""
    add: bool = True


FLOATS = Dot("f32", "f32", "f32")
DOUBLES = Dot("f64", "f64", "f64")
INTEGERS = Dot("s32", "s32", "s32")
"""The products that every vector unit has, of one instruction or two."""


@dataclass(frozen=True)
class Matrix:
    """A unit that multiplies small matrices in registers of its own, the *tiles*.

    A tile has up to ``rows`` rows of up to ``row_bytes``; there are ``tiles`` of them. The shape of
    each is state of the thread, set from 64 bytes in memory by ``configure`` and forgotten by
    ``release``. ``zero``, ``load`` and ``store`` are the other instructions that move them. A
    product of the ``dots`` is accumulator[m][n] += sum of a[m][k] * b[k][n] over the words k of a
    row of A, each a group of elements: B has a row for each word of A, and a word a column.
    """

    dots: tuple[Dot, ...]
    tiles: int = 8
    rows: int = 16
    row_bytes: int = 64
    configure: str = "llvm.x86.ldtilecfg"
    release: str = "llvm.x86.tilerelease"
    zero: str = "llvm.x86.tilezero"
    load: str = "llvm.x86.tileloadd64"
    store: str = "llvm.x86.tilestored64"


@dataclass(frozen=True)
class Instruction:
    """What the target does to ``lanes`` elements by the instruction that LLVM calls ``name``."""

    operation: str
    element: str
    lanes: int
    name: str


@dataclass(frozen=True)
class Isa:
    """One instruction set level of one architecture.

    ``vector_bits`` and ``registers`` size vectors and register tiles. ``fma`` says whether a fused
    multiply-add is one instruction: where it is not, LLVM would call a library function. ``masked``
    says whether loads and stores of 32 bits and more take a mask natively, ``masked_bytes`` whether
    those of smaller elements do, ``rounding`` whether rounding to integers is one instruction,
    ``half`` whether converting between f16 and f32 is. ``merging`` is the letter by which inline
    assembly asks for a vector register where arithmetic takes masks as well.

    ``instructions`` are those that generators cannot say in plain LLVM IR: ``pick`` elements of a
    register by the lanes of another, or ``pick bytes``, zero for places from 0x80 on; ``scale`` by
    a power of two, take the ``mantissa`` or the ``exponent``; round numbers ``to integers``, to
    -2^31 where s32 has none, and saturate signed ones of two registers ``to s16``, ``to s8`` or
    ``to u8``, unit by unit; ``narrow to bf16``, for which denormals are zero, the upper register
    first, and ``classify``; multiply u8 by s8 and ``add pairs of bytes`` up in 16 bits, which
    saturate; ``expand`` the first bytes of a register to places of bits. ``extra`` ones are those
    of processors that have a feature which others of the level lack. ``dots`` are the products of
    register tiles; ``matrix`` is the unit that has tiles as registers, if there is one. ``caches``
    are what a machine of this level has at least. ``device`` is None for processors.
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
    half: bool = True
    merging: str = ""
    instructions: tuple[Instruction, ...] = ()
    dots: tuple[Dot, ...] = (FLOATS, INTEGERS)
    extra: tuple[tuple[str, Instruction], ...] = ()
    matrix: Matrix | None = None
    caches: Caches = field(default_factory=Caches)
    device: Device | None = None

    def __post_init__(self) -> None:
        if self.vector_bits < 32 or self.vector_bits & (self.vector_bits - 1):
            raise ValueError(f"{self.name}: vector_bits must be a power of two of at least 32")
        if self.registers < 4:
            raise ValueError(f"{self.name}: a register tile needs at least 4 registers")

    def __hash__(self) -> int:
        """Of what rows differ in; every creation of a primitive looks its key up."""
        return hash((self.name, self.caches))

    def with_extra(self, flags: Container[str]) -> Isa:
        """The row of a processor with the features ``flags``."""
        there = [(feature, own) for feature, own in self.extra if feature in flags]
        features = tuple(dict.fromkeys(feature for feature, _ in there))
        instructions = tuple(own for _, own in there)
        return replace(
            self,
            features=(*self.features, *features),
            instructions=(*self.instructions, *instructions),
        )

    @property
    def lanes(self) -> int:
        """How many f32 values one vector register holds."""
        return self.vector_bits // 32

    def instruction(self, operation: str, element: str, lanes: int) -> str | None:
        """LLVM's name of the instruction that does ``operation`` to so many elements, if any."""
        for row in self.instructions:
            if (row.operation, row.element, row.lanes) == (operation, element, lanes):
                return row.name
        return None

    @property
    def target(self) -> str:
        """The kind of images with code of this row."""
        return "cpu" if self.device is None else self.device.target

    @property
    def feature_string(self) -> str:
        """The features in LLVM's notation, ``+a,+b``."""
        return ",".join(f"+{feature}" for feature in self.features)
