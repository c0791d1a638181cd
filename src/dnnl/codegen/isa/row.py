"""What the generators know about a target: one frozen row for each instruction set."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace

from llvmlite import ir

from dnnl.codegen.isa.caches import Caches


@dataclass(frozen=True)
class Groups:
    """Work-groups: items that run together, share memory and wait for each other at barriers.

    Reductions along contiguous memory, and transpositions, are shared by groups of ``least`` to
    ``most`` items, which are powers of two. Neighbouring items should touch ``segment`` bytes of
    memory or more at the same time. A group shares at most ``shared`` bytes, in the address space
    ``memory``, of which each ``bank`` bytes are in another bank.

    ``number`` emits the index (i64) of the group, ``member`` that of the invocation in it,
    ``barrier`` one that orders accesses to shared memory. ``require`` fixes the size of the groups
    of an entry point, where the driver's compiler makes use of it.
    """

    number: Callable[[ir.IRBuilder], ir.Value] = field(repr=False)
    member: Callable[[ir.IRBuilder], ir.Value] = field(repr=False)
    barrier: Callable[[ir.IRBuilder], None] = field(repr=False)
    require: Callable[[ir.Function, int], None] | None = field(default=None, repr=False)
    least: int = 32
    most: int = 256
    memory: int = 3
    segment: int = 64
    shared: int = 32 * 2**10
    bank: int = 4


@dataclass(frozen=True)
class Device:
    """How kernels are started on a device that is not a processor.

    ``target`` is the kind of the image: an object, or assembler ``text``. With ``own_process``,
    LLVM emits each image in a process of its own. ``convention`` is LLVM's calling convention of an
    entry point, ``memory`` the address space of tensors. ``item`` emits the index (i64) of the work
    item that an invocation does, ``items`` how many are started. ``annotate`` tells the driver's
    compiler what it should know of an entry point with vectors of so many f32. ``fence`` emits a
    fence, if LLVM's is not enough. ``groups`` are the work-groups, if kernels should use them.
    """

    target: str
    convention: str
    item: Callable[[ir.IRBuilder], ir.Value] = field(repr=False)
    items: Callable[[ir.IRBuilder], ir.Value] = field(repr=False)
    text: bool = False
    own_process: bool = False
    memory: int = 1
    annotate: Callable[[ir.Function, int], None] | None = field(default=None, repr=False)
    fence: Callable[[ir.IRBuilder], None] | None = field(default=None, repr=False)
    groups: Groups | None = None


@dataclass(frozen=True)
class Dot:
    """A dot-product instruction: accumulator[i] += sum over j < group of a[i * group + j] * b[i *
    group + j].

    ``a``, ``b`` and ``accumulator`` are element types. ``instruction`` is LLVM's name; its operands
    are (accumulator, a, b), or (a, b) if it does not ``add``. Without a name it is a plain
    multiplication and addition.
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
"""The dot products that every target has, as one instruction or two."""


@dataclass(frozen=True)
class Matrix:
    """A matrix unit: multiplies small matrices in registers of its own, the *tiles*.

    There are ``tiles`` tiles of up to ``rows`` rows of up to ``row_bytes`` bytes. Their shapes are
    state of the thread: ``configure`` sets them from 64 bytes in memory, ``release`` drops them.
    ``zero``, ``load`` and ``store`` move tiles. A product of the ``dots`` is accumulator[m][n] +=
    sum over k of a[m][k] * b[k][n], where k counts K groups of 4 bytes: B has one row for each
    group, and one group for each column.
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
    """LLVM's ``name`` of the instruction that does ``operation`` on ``lanes`` elements."""

    operation: str
    element: str
    lanes: int
    name: str


@dataclass(frozen=True)
class Isa:
    """One instruction set of one architecture.

    ``vector_bits`` and ``registers`` are the width and the number of vector registers. ``fma``: a
    fused multiply-add is one instruction (LLVM calls a library function otherwise). ``masked``:
    loads and stores of 32-bit elements and wider take masks; ``masked_bytes``: those of narrower
    ones too. ``rounding``: rounding to integers is one instruction. ``half``: conversion between
    f16 and f32 is. ``merging`` is the inline-assembly constraint of a vector register if arithmetic
    takes masks, else empty.

    ``instructions`` are operations that plain LLVM IR cannot express: ``pick`` looks elements up in
    a register by index, ``pick bytes`` does so for bytes and gives zero for indices from 0x80 on;
    ``permute`` selects elements of one register by index, ``permute two`` of two registers;
    ``scale`` multiplies by a power of two; ``mantissa`` and ``exponent`` extract; ``to integers``
    rounds to s32 and gives -2^31 on overflow; ``to s16``, ``to s8`` and ``to u8`` saturate two
    registers of signed integers into one, unit by unit; ``narrow to bf16`` takes the upper register
    first and flushes denormals; ``classify`` tests for float classes; ``add pairs of bytes``
    multiplies u8 by s8 and adds neighbours in 16 bits with saturation; ``expand`` distributes the
    first bytes of a register to the set bits of a mask.

    ``extra`` lists instructions behind a feature that not every processor of this level has.
    ``dots`` are the dot products of register tiles, ``matrix`` is the matrix unit or None.
    ``caches`` are the least that a machine of this level has.

    ``most_lanes`` is the length of the longest vector of any type, if there is a limit. Without
    ``mask_registers``, masked accesses are branches for each lane. With ``many_items``, thousands
    of work items run in parallel and starting one is free, so that each element may be one.
    ``thread_memory``: a work item has scratch memory in the caches of the thread that runs it.
    ``carried_addresses``: loops carry addresses; elsewhere these are computed from the index, since
    pointers that a loop carries lose their types in SPIR-V.
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
    half: bool = True
    merging: str = ""
    instructions: tuple[Instruction, ...] = ()
    dots: tuple[Dot, ...] = (FLOATS, INTEGERS)
    extra: tuple[tuple[str, Instruction], ...] = ()
    matrix: Matrix | None = None
    caches: Caches = field(default_factory=Caches)
    most_lanes: int | None = None
    mask_registers: bool = True
    many_items: bool = False
    thread_memory: bool = True
    carried_addresses: bool = True
    device: Device | None = None

    def __post_init__(self) -> None:
        if self.vector_bits < 32 or self.vector_bits & (self.vector_bits - 1):
            raise ValueError(f"{self.name}: vector_bits must be a power of two of at least 32")
        if self.registers < 4:
            raise ValueError(f"{self.name}: a register tile needs at least 4 registers")

    def __hash__(self) -> int:
        """Hash the identifying fields only: every creation of a primitive looks its key up."""
        return hash((self.name, self.caches))

    def with_extra(self, flags: Container[str]) -> Isa:
        """This row with the ``extra`` instructions whose features are in ``flags``."""
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
        """The f32 lanes of a vector register."""
        return self.vector_bits // 32

    def most_registers(self, lanes: int) -> int:
        """The registers of ``lanes`` lanes that a vector can span at most."""
        if self.lanes == 1:
            return 1
        return sys.maxsize if self.most_lanes is None else max(1, self.most_lanes // lanes)

    def instruction(self, operation: str, element: str, lanes: int) -> str | None:
        """LLVM's name of the instruction for ``operation`` on ``lanes`` elements, or None."""
        for row in self.instructions:
            if (row.operation, row.element, row.lanes) == (operation, element, lanes):
                return row.name
        return None

    @property
    def target(self) -> str:
        """The kind of the images that this row's code is linked into."""
        return "cpu" if self.device is None else self.device.target

    @property
    def address_space(self) -> int:
        """LLVM's address space of tensors and tables."""
        return 0 if self.device is None else self.device.memory

    @property
    def feature_string(self) -> str:
        """The features in LLVM's notation, ``+a,+b``."""
        return ",".join(f"+{feature}" for feature in self.features)
