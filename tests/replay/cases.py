"""The cases that are replayed, each for some targets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from dnnl.codegen import isa
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.lexer import INPUTS
from tests.test_records import LINES

TARGETS = tuple(row.name for row in (*isa.ROWS, *isa.DEVICES))
ALWAYS = ("avx2", "avx512_core_bf16")
"""Targets of every case: what most users have, and the row with the most instructions."""
LISTED = 50
"""Cases of each driver's lists."""
NETWORKS = (
    "--conv --dir=FWD_I --attr-post-ops=relu --mb=1 --stag=any,nchw --batch=shapes_resnet_50",
    "--conv --dir=FWD_I --dt=bf16,u8:s8:u8 --mb=1 --batch=shapes_resnet_50",
    "--conv --dir=FWD_I,BWD_D --dt=f32,bf16 --stag=any g32mb1ic128ih56oc128kh3ph1",
    "--conv --dir=BWD_W --dt=f32,bf16 --stag=any mb16ic64ih56oc64kh1 mb16ic64ih56oc64kh3ph1",
    "--matmul --stag=ab --wtag=ab --dtag=ab 512x512:512x512 1x4096:4096x4096",
    "--matmul --dt=f32,bf16,u8:s8:f32,f32:s4:f32 --stag=ab 1x768:768x3072 128x768:768x768",
    "--matmul --dt=f32,u8:s8:u8 --stag=ab --wtag=ab --dtag=ab --runtime_dims_masks=1: 1x64:64x64",
    "--matmul --stag=abcd --wtag=abdc --dtag=abcd 1x12x128x64:1x12x64x128",
    "--conv --dir=FWD_I,BWD_D,BWD_W --open=batch+spatial ic64ih56oc64kh3ph1 ic64ih56oc256kh1",
    "--conv --dir=FWD_I --open=batch+spatial g96mb1ic96ih56oc96kh3ph1 mb1ic3ih224oc64kh7sh2ph3",
    "--pool --dir=FWD_D,BWD_D --open=batch+spatial --alg=max mb1ic64ih112kh3sh2ph1",
    "--matmul --stag=ab --wtag=ab --dtag=ab --open=all,batch 128x768:768x768",
)
"""The products of networks, which `bench/` measures, their gradients, and some with open sizes."""


@dataclass(frozen=True)
class Replayed:
    """A case in the language of ``dnnl bench``, and the instruction set or device it is for."""

    target: str
    line: str


def cases() -> list[Replayed]:
    """All that is replayed: records' examples for all targets, others for some."""
    found = [Replayed(target, line) for line in _examples() for target in TARGETS]
    for line in (*_opened(), *_listed(), *_networks()):
        other = TARGETS[number_of(line) % len(TARGETS)]
        found += [Replayed(target, line) for target in dict.fromkeys((*ALWAYS, other))]
    return list(dict.fromkeys(found))


def _examples() -> Iterator[str]:
    """The first case of each example in each propagation."""
    for _, line in LINES:
        yield next(Interpreter().cases(line.split())).repro


def _opened() -> Iterator[str]:
    """The last case of each example in each propagation, with all sizes open."""
    for _, line in LINES:
        driver, *options = line.split()
        *_, last = Interpreter().cases([driver, "--open=all", *options])
        yield last.repro


def _listed() -> Iterator[str]:
    """Some cases of each driver's lists: those whose hashes are the smallest, so that a case that
    is added or removed changes one of them at the most."""
    for driver in sorted(
        {description.operation.driver.name for description in OPERATIONS.values()}
    ):
        files = sorted(INPUTS.glob(f"{driver}/*"))
        tests = [file.name for file in files if not file.name.startswith(("shapes", "option"))]
        lines = {
            case.repro
            for name in tests
            for case in Interpreter().cases([f"--{driver}", f"--batch={name}"])
        }
        yield from sorted(lines, key=number_of)[:LISTED]


def _networks() -> Iterator[str]:
    for line in NETWORKS:
        for case in Interpreter().cases(line.split()):
            yield case.repro


def number_of(line: str) -> int:
    """A number that depends only on the text of a case: samples are those with the smallest."""
    return int(hashlib.sha256(line.encode()).hexdigest()[:16], 16)
