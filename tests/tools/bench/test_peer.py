"""Cases that oneDNN runs as well, in a process of their own: its threads stay to the end."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dnnl.errors import Unimplemented
from dnnl.reference.arrays import Array
from dnnl.runtime.engine import Engine
from dnnl.tools.bench import comparison
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.comparison import Opponent
from dnnl.tools.bench.execute import _PEERS, Executor
from dnnl.tools.bench.peers.base import Deviation
from dnnl.tools.bench.peers.onednn_builds import OpenMp, Sycl
from dnnl.tools.bench.report import Report
from dnnl.tools.bench.result import State
from dnnl.tools.bench.trial import Trial
from dnnl.types.arg import Arg


def is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


PACKAGES = {"onednn": Sycl.package, "onednn-openmp": OpenMp.package}
INSTALLED = [name for name, package in PACKAGES.items() if is_installed(package)]
needs_peer = pytest.mark.skipif(not INSTALLED, reason=f"needs one of {PACKAGES.values()}")
needs_openmp = pytest.mark.skipif(
    "onednn-openmp" not in INSTALLED, reason=f"needs {OpenMp.package}, of which it tells"
)
each_peer = pytest.mark.parametrize("peer", INSTALLED)

EVERYTHING = """
--softmax --alg=SOFTMAX,LOGSOFTMAX --dtag=any,axb 5x19x3
--softmax --dir=BWD_D --alg=SOFTMAX,LOGSOFTMAX --dtag=any,axb 5x19x3
--eltwise --alg=relu,exp --attr-post-ops=add:f32:per_oc 5x19x3
--binary --alg=ADD,DIV,GE --attr-post-ops=sum:0.5+linear:2:1 5x19x3:1x19
--sum --sdt=f32:f32 --scales=0.25:2 --stag=axb 5x19x3
--concat --axis=0 5x19x3:4x19x3
--reorder --dtag=axb,aBx16b 5x19x3x4
--reorder --runtime-dim-mask=63 --ddt=f32,s8 --attr-scales=,src:per_dim_1 5x19x3x4
--reorder --runtime-dim-mask=63 --stag=axb,aBx16b 5x19x3x4
--reorder --ddt=s8 --dtag=OIhw4i16o4i,hwio --oflag=s8s8_comp:1+zp_comp:1 20x17x3x3
--reorder --ddt=s8 --dtag=gOIhw4i16o4i,debac --oflag=s8s8_comp:3+zp_comp:3 3x20x5x3x3
--bnorm --dir=FWD_I --flags=GCH mb3ic19ih5
--bnorm --dir=BWD_DW --flags=CH mb3ic19ih5
--lnorm --dir=BWD_DW --flags=CH 5x19
--pool --dir=FWD_I --alg=max,avg_np,avg_p ic19ih13kh3sh2ph1
--prelu --dir=FWD_D,BWD_DW --stag=abx:any 5x19x3:1x19
--shuffle --dir=FWD_D,BWD_D --group=4 --tag=abx,axb 5x12x3
--conv --dir=FWD_B --attr-post-ops=sum+relu g2ic16ih7oc32kh3ph1
--ip --dir=FWD_B mb3ic16ih3oc33
--conv --dir=BWD_D,BWD_WB g2ic6ih7oc10kh3ph1
--deconv --dir=BWD_D,BWD_W g2ic6ih7oc10kh3sh2ph1
--ip --dir=BWD_D,BWD_WB --stag=axb mb3ic16ih3oc33
--matmul --bia-dt=f32 --attr-post-ops=prelu:per_oc 20x30:30x17
--rnn --prop=FWD_D,BWD_DW --alg=VANILLA_LSTM,LBR_GRU --direction=concat l2t3mb4sic8slc8dhc8dic8
--rnn --alg=VANILLA_RNN,VANILLA_GRU --direction=right2left l1t3mb4sic8slc8dhc8dic8
--rnn --alg=VANILLA_AUGRU,LBR_AUGRU l1t3mb4sic8slc8dhc8dic8
--rnn --alg=VANILLA_LSTM --with-peephole=true l1t3mb4sic8slc8dhc8dic8
--rnn --cfg=u8u8u8f32 --scaling=per_oc --alg=VANILLA_LSTM l1t3mb4sic8slc8dhc8dic8
"""


@each_peer
def test_every_driver_agrees_with_it(peer: str) -> None:
    program = (
        "import sys\n"
        "from dnnl.tools.bench.command import run\n"
        f"lines = {EVERYTHING.strip().splitlines()!r}\n"
        f"sys.exit(sum(run(['--peer={peer}', '-v1', *line.split()]) for line in lines))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(":PASSED") == len(re.findall(r"onednn 3[.0-9]+: \S+\n", done.stdout))
    assert done.stdout.count(":PASSED") == 58


@needs_openmp
@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("--prop=BWD_DW --alg=VANILLA_AUGRU", "its gradients with attention are not those of"),
        ("--cfg=s8s8s8s8 --alg=VANILLA_LSTM", "it saturates states of s8 at 0"),
        ("--cfg=u8u8u8u8 --alg=VANILLA_LSTM --direction=sum", "it adds the integers of both"),
    ],
)
def test_what_it_computes_wrongly_is_said(case: str, what: str) -> None:
    line = f"bench -v1 --peer=onednn-openmp --rnn {case} l1t3mb4sic8slc8dhc8dic8"
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", *line.split()], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if "s8s8s8s8" not in case or ": ref\n" in done.stdout:  # some processors multiply s8
        assert f"differs: {what}" in done.stdout
    else:
        assert "differs" not in done.stdout


@each_peer
def test_times_beside_it(peer: str, tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    line = f"bench --mode=P --fix-times-per-prb=2 --peer={peer} --json={path} --softmax 128x4096"
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", *line.split()], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"\npeer,onednn 3[.0-9]+,\S+:\S+,min_time:(\S+),avg_time:\S+,ratio:", done.stdout
    )
    assert found
    (case,) = json.loads(path.read_text())["cases"]
    (theirs,) = case["peers"]
    assert theirs["min_ms"] == pytest.approx(float(found[1]), rel=1e-4)
    assert theirs["ratio"] == pytest.approx(theirs["min_ms"] / case["min_ms"])
    assert "peer ratio (above 1: ours is faster): mean:" in done.stdout


class Refusing:
    """A peer that does nothing."""

    name = "nobody"
    queue = None

    def make(self, *_: object) -> object:
        raise Unimplemented("not today")


def test_a_refusal_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_PEERS, "onednn", lambda _: Refusing())
    for mode, state in (("C", State.PASSED), ("P", State.EXECUTED)):
        line = f"--mode={mode} --fix-times-per-prb=1 --peer=onednn --softmax 3x4"
        (case,) = Interpreter().cases(line.split())
        result = Executor().run(case)
        assert result.state is state
        assert [peer.refusal for peer in result.peers] == ["not today"]


class Wrong:
    """An operation of which each result is off by one, and of which that is known of some."""

    impl_info = "wrong:any"

    def __init__(self, exact: Array, known: int) -> None:
        self.exact, self.known = exact, known

    def bind(self) -> None:
        pass

    def read(self, argument: int) -> Array:
        return self.exact + 1

    def deviation(self, exact: Array) -> Deviation | None:
        assert (exact == self.exact).all()
        at = np.arange(exact.size).reshape(exact.shape) < self.known
        return Deviation("it adds one", at) if self.known else None


@pytest.mark.parametrize("known", [0, 5, 12])
def test_disagreement_is_a_failure_unless_it_is_known(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def oppose(peer: object, trial: Trial, stream: object) -> Opponent:
        operation = Wrong(trial.expect().outputs[Arg.DST], known)
        return Opponent("nobody", cast(Any, operation), operation.bind)

    monkeypatch.setitem(_PEERS, "onednn", lambda _: Refusing())
    monkeypatch.setattr(comparison, "oppose", oppose)
    (case,) = Interpreter().cases(["--peer=onednn", "--softmax", "3x4"])
    result = Executor().run(case)
    wrong = 12 - known
    assert (result.state, result.errors) == (State.FAILED if wrong else State.PASSED, wrong)
    assert not wrong or "nobody" in result.lines[-1]
    (peer,) = result.peers
    assert peer.differs == (f"it adds one ({known} elements)" if known else "")
    report = Report()
    shown = report.add(case, result)
    assert (f"nobody differs: {peer.differs}" in shown) == bool(known)
    line = "nobody: cases in which the peer differs:1"
    assert (line in report.summary(1.0, Counter())) == bool(known)


@needs_openmp
@pytest.mark.parametrize(("channels", "wrong"), [(40, True), (32, False)])
def test_where_its_gradients_differ(channels: int, wrong: bool) -> None:
    """Its kernels for AVX-512 step wrongly through the last channels."""
    line = f"--lrn --dir=BWD_D --dt=bf16 --tag=axb ic{channels}ih5alpha1"
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", "bench", "--peer=onednn-openmp", *line.split()],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    generated = "avx512bw" in Engine("cpu").features.flags
    assert ("differs: it steps wrongly" in done.stdout) == (wrong and generated)


@needs_openmp
def test_where_it_differs() -> None:
    """Reorders of bf16 are generated for AVX-512 alone; its plain loops for other processors
    saturate."""
    generated = "avx512bw" in Engine("cpu").features.flags
    lines = (
        "--sdt=bf16 --ddt=s8,u8 --dtag=ba 5x19",
        "--sdt=s32 --ddt=s32 --attr-zero-points=dst:common:2 5x19",
        "--sdt=s8 --ddt=f32 --stag=adbc --attr-zero-points=src:common:-1 1x12x128x33",
    )
    options = " --reset ".join(lines).split()
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", "bench", "--peer=onednn-openmp", "--reorder", *options],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wraps = 3 if generated else 1
    assert done.stdout.count("differs: it does not saturate what is beyond s32 (") == wraps
    assert "differs: it forgets the zero point of src (50688 elements)" in done.stdout
    assert f"cases in which the peer differs:{wraps + 1}\n" in done.stdout


@needs_openmp
def test_what_it_does_not_have_is_said_and_counted() -> None:
    lines = {
        "--binary --alg=SELECT 5x19:5x19": "has no binary_primitive_desc_create_v2",
        "--binary --attr-post-ops=select:f32 5x19:5x19": "has no post-op binary_select",
        "--gather 5x19:3": "does not document gather",
    }
    program = (
        "import sys\n"
        "from dnnl.tools.bench.command import run\n"
        "options = '--peer=onednn-openmp', '-v1'\n"
        f"sys.exit(sum(run([*options, *line.split()]) for line in {list(lines)!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for reason in lines.values():
        assert reason in done.stdout, done.stdout
    assert done.stdout.count(": cases without peer:1\n") == len(lines)


NEWER = """
--gnorm --dir=FWD_D,BWD_DW --flags=CH g2mb2ic8ih5
--lnorm --flags=CM --ss_dt=bf16,f32 --dt=bf16 8x64
--binary --alg=SELECT --stag=abx:abx 5x19:5x19
--matmul --dt=bf16:u4:bf16 --wtag=ab --attr-fpmath=bf16:true --attr-scales=wei:per_ocic:f16:32x1 \
8x64:64x32
"""


@pytest.mark.skipif("onednn" not in INSTALLED, reason=f"needs {Sycl.package}")
def test_what_the_newest_does_besides_and_that_its_threads_stay() -> None:
    lines = [*NEWER.strip().splitlines(), "--softmax --ctx-exe=1,2 5x19"]
    program = (
        "import sys\n"
        "from dnnl.tools.bench.command import run\n"
        f"sys.exit(sum(run(['--peer=onednn', '-v1', *line.split()]) for line in {lines!r}))"
    )
    environment = {**os.environ, "DNNL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"onednn 3[.0-9]+: \S+\n", done.stdout)) == 7
    assert "has 1 threads in this process, where it began with them: not 2" in done.stdout
