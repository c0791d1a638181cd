"""An engine ``qemu``: images for aarch64, each linked with a small program and run by qemu-aarch64.

The program, see `tests.qemu.driver`, is started anew for each launch and gets the contents of the
buffers. They lie between guard pages, at the end of their pages or at the beginning, by chance.
The work items of a phase are cut into ranges, which are done in any order.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dnnl.codegen.isa import aarch64
from dnnl.errors import Error
from dnnl.runtime.backend import Backend, Buffer, Executable, Features, Queue
from dnnl.runtime.engine import Engine, register
from dnnl.runtime.event import COMPLETE, Event, wait_for
from dnnl.runtime.image import Image, Phase
from tests.qemu.driver import PAGE, SYSTEM, driver
from tests.repeats import in_order

TOOLS = ASSEMBLER, LINKER, EMULATOR = (
    "aarch64-linux-gnu-as",
    "aarch64-linux-gnu-ld",
    "qemu-aarch64",
)
_PROCESSOR = {"neon": "cortex-a57"}  # by row: one that has what the row says, and no more
_FRESH = 0xCD  # what is in memory that nobody wrote
_SECONDS = 60


def missing() -> str:
    """The programs that are not installed, "" if all are."""
    absent = [program for program in TOOLS if shutil.which(program) is None]
    packages = "Debian: binutils-aarch64-linux-gnu, qemu-user"
    return f"needs {', '.join(absent)} ({packages})" if absent else ""


class QemuExecutable(Executable):
    """A program, if there is anything to do, and what it does."""

    __slots__ = ("image", "program")

    def __init__(self, image: Image, program: Path) -> None:
        self.image, self.program = image, program


class QemuQueue(Queue[QemuExecutable]):
    """Runs each launch at once."""

    def __init__(self, device: QemuBackend) -> None:
        self._device = device

    def submit(
        self,
        executable: QemuExecutable,
        arguments: Sequence[Buffer],
        threads: int,
        after: Sequence[Event] = (),
    ) -> Event:
        wait_for(after)
        if executable.image.phases:
            self._device.run(executable, arguments, threads)
        return COMPLETE

    def wait(self) -> None:
        """Returns at once."""


class QemuBackend(Backend):
    """A processor with the features of one row for aarch64."""

    host_memory = False

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.chance = random.Random(index)
        self.launches = 0
        self._row = aarch64.ROWS[index]
        self._folder = tempfile.TemporaryDirectory(prefix="dnnl-qemu-", ignore_cleanup_errors=True)

    @classmethod
    def count(cls) -> int:
        return len(aarch64.ROWS)

    def features(self) -> Features:
        return Features(self._row.arch, self._row.cpu, frozenset(self._row.features))

    def load(self, image: Image) -> QemuExecutable:
        symbols = [phase.symbol for phase in image.phases]
        digest = hashlib.sha256("\0".join([*symbols, ""]).encode() + image.code).hexdigest()
        program = Path(self._folder.name, digest)
        if symbols and not program.exists():
            program.write_bytes(_linked(symbols, image.code))
            program.chmod(0o700)
        return QemuExecutable(image, program)

    def make_queue(self, in_order: bool, profiling: bool = False) -> QemuQueue:
        return QemuQueue(self)

    def allocate(self, nbytes: int) -> Buffer:
        return Buffer(_Block(nbytes), 0, None, None)

    def read(self, buffer: Buffer, nbytes: int) -> NDArray[np.uint8]:
        found: NDArray[np.uint8] = buffer.handle.bytes[buffer.offset :][:nbytes]
        return found.copy()

    def write(self, buffer: Buffer, data: NDArray[np.uint8]) -> None:
        buffer.handle.bytes[buffer.offset :][: data.size] = data

    def run(self, executable: QemuExecutable, arguments: Sequence[Buffer], threads: int) -> None:
        """All phases of an image."""
        image = executable.image
        scratch = Buffer(_Block(image.scratch * threads), 0, None, None)
        places = [scratch, *arguments]
        blocks = list({id(place.handle): place.handle for place in places}.values())
        numbers = {id(block): number for number, block in enumerate(blocks)}
        calls = [
            (number, *part)
            for number in in_order(image)
            for part in self._parts(image.phases[number], threads)
        ]
        rows = [
            (len(blocks), len(places), len(calls)),
            *(self._placed(block.bytes.size) for block in blocks),
            *((numbers[id(place.handle)], place.offset) for place in places),
            *calls,
        ]
        words = [word for row in rows for word in row]
        given = [struct.pack(f"={len(words)}q", *words), *(block.bytes for block in blocks)]
        self.launches += 1
        done = subprocess.run(
            [EMULATOR, "-cpu", _PROCESSOR[self._row.name], str(executable.program)],
            input=b"".join(given),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            what = f"{image.phases[0].symbol} under {EMULATOR} ended with {done.returncode}"
            raise Error(f"{what}: {done.stderr.decode(errors='replace').strip()}")
        ends = list(itertools.accumulate(block.bytes.size for block in blocks))
        contents = np.split(np.frombuffer(done.stdout, np.uint8), ends)
        for block, content in zip(blocks, contents, strict=False):
            block.bytes[:] = content

    def _placed(self, nbytes: int) -> tuple[int, int, int]:
        """The bytes of a buffer's pages, its own, and where it begins in the pages."""
        pages = -(-max(nbytes, 1) // PAGE) * PAGE
        return pages, nbytes, self.chance.choice((0, pages - nbytes))

    def _parts(self, phase: Phase, threads: int) -> Iterator[tuple[int, int, int]]:
        """Ranges of the items of a phase, each with its thread, in any order."""
        cuts = {self.chance.randrange(phase.count) for _ in range(2 * threads - 2) if phase.count}
        ranges = list(itertools.pairwise(sorted({0, phase.count, *cuts})))
        self.chance.shuffle(ranges)
        for begin, end in ranges:
            yield begin, end, self.chance.randrange(threads)


class _Block:
    """A piece of the device's memory."""

    def __init__(self, nbytes: int) -> None:
        self.bytes = np.full(nbytes, _FRESH, np.uint8)


@cache
def _system() -> bytes:
    """The object code of `SYSTEM`."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "system.o")
        subprocess.run([ASSEMBLER, "-o", made, "-"], input=SYSTEM.encode(), check=True)
        return made.read_bytes()


def _linked(symbols: Sequence[str], code: bytes) -> bytes:
    """The program for an image with these phases and this code."""
    objects = {"driver.o": driver(len(symbols)), "system.o": _system(), "image.o": code}
    # In quotes, since the linker takes some names for hexadecimal numbers.
    names = [f'--defsym=phase.{number}="{symbol}"' for number, symbol in enumerate(symbols)]
    with tempfile.TemporaryDirectory() as folder:
        for name, own in objects.items():
            Path(folder, name).write_bytes(own)
        command = [LINKER, "-z", "noexecstack", *names, "-o", "program", *objects]
        subprocess.run(command, cwd=folder, check=True)
        return Path(folder, "program").read_bytes()


register("qemu", QemuBackend)
QEMU = Engine("qemu")
