"""What the work items of a device ask of its memory, counted in the generated code.

The code runs on the host, item by item, and notes each access to the tensors. Items access memory
together, 32 at a time; a request takes as many sectors of 32 bytes as it touches. Nothing waits at
barriers, and results are wrong: addresses do not depend on what shared memory holds.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import binding as llvm

from dnnl.runtime.image import Phase
from tests.replay.generate import recipe

ROW = "spirv64"
TOGETHER = 32
_SECTOR = 32  # bytes
_ALIGNMENT = 256  # bytes
_SIZES = {"i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
_ACCESS = re.compile(
    r"(?P<kind>load|store) (?:<(?P<count>\d+) x )?(?P<element>\w+)>?"
    r"(?: [^,]*)?, ptr addrspace\(1\) (?P<place>[%@][^,]+),"
)
_NUMBERS = {
    "_Z12get_local_idj": "member",
    "_Z12get_group_idj": "number",
    "_Z13get_global_idj": "number",
}
_Note = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class Traffic:
    """The requests of some items, the sectors that they touch, and the bytes that they want;
    accesses at no multiple of their size are ``misaligned``."""

    requests: int
    sectors: int
    nbytes: int
    misaligned: int

    @property
    def per_kib(self) -> tuple[float, float]:
        """Requests and sectors for each KiB that is wanted; 32 sectors are the least."""
        return self.requests * 1024 / self.nbytes, self.sectors * 1024 / self.nbytes


@dataclass(frozen=True)
class _Access:
    """An instruction: ``load`` or ``store``, of so many bytes."""

    kind: str
    nbytes: int


def traffic(line: str, items: int = 512, skipped: Sequence[int] = ()) -> dict[str, Traffic]:
    """The loads and stores of the first invocations of a case's first phase, whose tensors begin so
    many bytes behind an aligned address; by default none."""
    kernel = recipe(ROW, line).kernel()
    phase = kernel.phases[0]
    text, accesses = _noting(str(llvm.parse_assembly(str(kernel.module))))
    requests: Counter[str] = Counter()
    sectors: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    misaligned: Counter[str] = Counter()
    for together in _runs(text, phase, items, skipped or (0,) * len(phase.slots)):
        for (number, _), places in together.items():
            access = accesses[number]
            touched = {
                sector
                for place in places
                for sector in range(place // _SECTOR, -(-(place + access.nbytes) // _SECTOR))
            }
            requests[access.kind] += 1
            sectors[access.kind] += len(touched)
            nbytes[access.kind] += access.nbytes * len(places)
            misaligned[access.kind] += sum(place % access.nbytes != 0 for place in places)
    counts = requests, sectors, nbytes, misaligned
    return {kind: Traffic(*(count[kind] for count in counts)) for kind in requests}


def _noting(text: str) -> tuple[str, list[_Access]]:
    """The code as one for the host, in which each access to a tensor is noted; and the accesses."""
    accesses: list[_Access] = []
    lines = []
    for line in text.splitlines():
        found = _ACCESS.search(line)
        if found is not None:
            number, size = len(accesses), _SIZES[found["element"]] * int(found["count"] or 1)
            accesses.append(_Access(found["kind"], size))
            lines.append(f"  %note{number} = ptrtoint ptr addrspace(1) {found['place']} to i64")
            lines.append(f"  call void @note(i64 {number}, i64 %note{number})")
        lines.append(line)
    text = re.sub(r'target triple = ".*"', "", "\n".join(lines))
    text = re.sub(r" addrspace\(\d\)|spir_kernel |spir_func |convergent", "", text)
    text = re.sub(r"align \d+", "align 1", text)  # what is misaligned is counted
    text = re.sub(r"attributes #\d+ = \{ *\}", "", text)
    for function, variable in _NUMBERS.items():
        body = f"{{ %value = load i64, ptr @{variable}\n ret i64 %value }}"
        text = re.sub(rf"declare (i64 @{function}\(i32\)).*", rf"define \1 {body}", text)
    barrier = r"declare (void @_Z22__spirv_ControlBarrierjjj\(i32, i32, i32\)).*"
    text = re.sub(barrier, r"define \1 { ret void }", text)
    own = "@member = global i64 0\n@number = global i64 0\ndeclare void @note(i64, i64)\n"
    return text + own, accesses


def _runs(
    text: str, phase: Phase, items: int, skipped: Sequence[int]
) -> Iterator[dict[tuple[int, int], list[int]]]:
    """The addresses of each request: of an access, and how often it came before in an item."""
    noted: list[tuple[int, int]] = []
    note = _Note(lambda number, place: noted.append((number, place)))
    llvm.add_symbol("note", ctypes.cast(note, ctypes.c_void_p).value)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=1)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    number, member = (
        ctypes.c_int64.from_address(engine.get_global_value_address(name))
        for name in ("number", "member")
    )
    pointers = [ctypes.c_void_p] * len(phase.slots)
    run = ctypes.CFUNCTYPE(None, *pointers)(engine.get_function_address(phase.symbol))
    tensors = [np.zeros(2**27, np.uint8) for _ in phase.slots]
    places = [
        -(-tensor.ctypes.data // _ALIGNMENT) * _ALIGNMENT + nbytes
        for tensor, nbytes in zip(tensors, skipped, strict=True)
    ]
    for first in range(0, items, TOGETHER):
        requests: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for item in range(first, first + TOGETHER):
            number.value, member.value = divmod(item, phase.group)
            noted.clear()
            run(*places)
            before: Counter[int] = Counter()
            for access, place in noted:
                requests[access, before[access]].append(place)
                before[access] += 1
        yield requests
