"""Cases that PyTorch runs as well, in processes of their own: its threads stay to the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch")

AGREES = """
--softmax --alg=SOFTMAX,LOGSOFTMAX --dtag=any,axb 5x19x3
--softmax --dir=BWD_D --alg=SOFTMAX,LOGSOFTMAX --stag=abx,axb --dtag=any,axb 5x19x3
--softmax --stag=axb --axis=0,1,3 --inplace=true,false 2x19x7x3
--eltwise --alg=relu,exp,tanh,gelu_erf,gelu_tanh,log,logistic,mish,square,sqrt,abs 5x19x3
--eltwise --alpha=2 --beta=3 --alg=relu,elu,clip,clip_v2,linear,soft_relu --tag=axb 2x3x4
--eltwise --alpha=1 --beta=2 --alg=swish,pow --attr-post-ops=add:f32:per_oc+round 5x19x3
--eltwise --alpha=0.16666667 --beta=0.5 --alg=hardswish,hardsigmoid 5x19x3
--eltwise --dir=BWD_D --alg=relu,relu_dst,tanh_dst,logistic_dst,exp_dst,sqrt_dst,abs 5x19x3
--eltwise --dir=BWD_D --alg=gelu_erf,gelu_tanh,mish,square,log --tag=abx,axb 5x19x3
--eltwise --dir=BWD_D --alpha=2 --beta=3 --alg=relu,relu_dst,elu,elu_dst,linear,soft_relu 2x3x4
--eltwise --dir=BWD_D --alpha=-2 --beta=3 --alg=relu,elu,clip_v2,clip_v2_dst,soft_relu 5x19x3
--eltwise --dir=BWD_D --alpha=1 --beta=2.5 --alg=swish,pow --dt=f32,f16 5x19x3
--eltwise --dir=BWD_D --alpha=0.16666667 --beta=0.5 --alg=hardswish,hardsigmoid --dt=f32,bf16 5x19
--binary --alg=ADD,SUB,MUL,DIV,MAX,MIN,GE,GT,LE,LT,EQ,NE --stag=axb:any 5x19x3:1x19
--binary --attr-post-ops=sum:0.5+linear:2:1 5x19x3:5x19x3
--sum --sdt=f32:f32:f32 --scales=1,0.25:2:3 --stag=axb 5x19x3
--concat --axis=0 --stag=axb 5x19x3:4x19x3
--reorder --dtag=axb,abx,aBx16b 5x32x3x4
--reorder --stag=ABx16a16b,axb,aBx32b --dtag=aBx16b,aBx8b 64x32x3x4
--reorder --strides=40x8x1:1x4x20 4x5x6
--reorder --ddt=bf16,f16,s8,u8,s32 5x19x3x4
--reorder --sdt=s8,s32,u8,f16,bf16 --ddt=f32,s8,s32 5x19x3x4
--reorder --ddt=s8 --attr-scales=src:common:0.5+dst:per_dim_1 --attr-zero-points=dst:common:1 5x19
--reorder --sdt=s8 --attr-scales=src:common:0.5 --attr-zero-points=src:common:1 5x19x3x4
--reorder --attr-post-ops=sum:0.5 --dtag=axb 5x19x3x4
--reorder --ddt=f32,s8 --attr-scales=src:per_dim_1+dst:common:0.25 --attr-post-ops=sum:0.5 5x19x3
--bnorm --dir=FWD_I --flags=G,GCH,GCHR --tag=abx,axb mb3ic19ih5
--gnorm --dir=FWD_I,FWD_D,BWD_D,BWD_DW --flags=,CH --tag=abx,axb g4mb3ic20ih5iw7
--gnorm --dir=BWD_DW --flags=CH --tag=axb:abx,axb,abx:axb g4mb3ic20iw7 g4ic20ih5iw7
--pool --dir=FWD_I --alg=max,avg_np,avg_p --tag=abx,axb ic19ih13kh3sh2ph1 ic4id5kd2 ic4iw9kw3
--prelu --dir=FWD_I,BWD_DW --stag=abx:abx,axb:axb 5x19x3:1x19 5x19x3:1 5x19x3:5x19x3
--shuffle --dir=FWD_I,BWD_D --dt=f32,s8 --group=4 --tag=abx,axb 5x12x3
--gather --sdt=f32:s32,s8:s32 --stag=abx,axb --axis=0,1,2 5x12x3:7 5x12x3:4x12x2
--conv --attr-post-ops=,relu,sum+relu,add:f32:per_oc --dtag=any,abx g2ic16ih7oc32kh3ph1
--conv --dir=FWD_B,FWD_I ic16iw9oc8kw3 ic3id4oc5kd2pd1 ic16ih14kh3sh2ph0oc32
--ip --dir=FWD_B,FWD_I mb3ic16ih3oc33
--conv --dir=BWD_D,BWD_W,BWD_WB --stag=any,abx g2ic6ih7oc10kh3ph1 ic6iw9oc4kw3sw2pw1
--deconv --dir=BWD_D,BWD_W,BWD_WB g2ic6ih7oc10kh3sh2ph1 ic6iw9oc4kw3pw1
--ip --dir=BWD_D,BWD_W,BWD_WB --stag=abx,axb mb3ic16ih3oc33
--matmul --bia-dt=undef,f32 --bia_mask=2,3 --attr-post-ops=,prelu:per_oc --stag=ab,ba 20x30:30x17
--reduction --alg=sum,mean,max,min --stag=abx,axb 5x19x3:5x1x3 5x19x3:1x19x1
--resampling --dir=FWD_I,BWD_D --alg=nearest,linear --tag=abx,axb ic19ih5oh9 ic3iw8ow5
--matmul --stag=abx,axb 2x20x30:2x30x17 3x4x5:1x5x6
--rnn --prop=FWD_I,BWD_DW --alg=VANILLA_LSTM,LBR_GRU l2t3mb4sic8slc8dhc8dic8
--rnn --prop=FWD_D,BWD_DW --activation=TANH,RELU --direction=concat l1t3mb4sic8slc8dhc8dic8
--rnn --prop=BWD_DW --flags=O --alg=VANILLA_LSTM --with-projection=true l1t3mb4sic6slc8dhc8dic6
"""

HAS_NO_EQUAL = {
    "--reorder --dtag=aBx16b 5x19x3x4": "no layout aBcd16b with padding",
    "--eltwise --tag=aBx16b 5x32x3x4": "no layout aBcd16b for this",
    "--eltwise --dt=s8 5x32": "computes eltwise of s8 differently",
    "--eltwise --alg=swish --alpha=2 5x32": "no swish with alpha 2, beta 0",
    "--eltwise --dir=BWD_D --alg=tanh 5x32": "the gradient of tanh by dst: see --alg=tanh_dst",
    "--eltwise --dir=BWD_D --alg=clip --beta=1 5x32": "no gradient of clip with alpha 0, beta 1",
    "--reorder --ddt=f8_e4m3 5x32": "saturates what f8_e4m3 does not hold",
    "--reorder --ddt=f4_e2m1 5x32": "no type f4_e2m1",
    "--pool --dir=FWD_I --alg=avg_p ic4ih9kh2dh1": "no average of dilated windows",
    "--conv ic16ih7oh7oc8kh2ph0": "pads both ends alike",
}


def bench(*arguments: str) -> str:
    """The output of one process that runs the lines."""
    program = (
        "import sys\n"
        "from dnnl.tools.bench.command import run\n"
        f"sys.exit(sum(run(line.split()) for line in {arguments!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_driver_agrees_with_it() -> None:
    out = bench(*(f"--peer=torch -v1 {line}" for line in AGREES.strip().splitlines()))
    assert out.count(":PASSED") == 317
    assert len(re.findall(r"\ntorch 2\S+: \w[\w.]+(?=\n)", "\n" + out)) == 317


def test_what_has_no_equal_is_said_and_counted() -> None:
    out = bench(*(f"--peer=torch -v1 {line}" for line in HAS_NO_EQUAL))
    for reason in HAS_NO_EQUAL.values():
        assert f"PyTorch has {reason}" in out or f"PyTorch {reason}" in out, reason
    assert len(re.findall(r"torch 2\S+: cases without peer:1\n", out)) == len(HAS_NO_EQUAL)


def test_times_beside_two_peers(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    line = f"bench --mode=P --fix-times-per-prb=2 --peer=torch,onednn --json={path} --softmax 8x64"
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", *line.split(), "--stag=aBx16b", "8x64"],
        check=False,
        capture_output=True,
        text=True,
    )
    if "needs pip install" in done.stderr:
        pytest.skip("needs oneDNN")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(
        r"\npeer,torch 2\S+,softmax,min_time:(\S+),avg_time:\S+,ratio:\S+"
        r"\npeer,onednn 3\S+,\S+:\S+,min_time:(\S+),avg_time:\S+,ratio:\S+\n",
        done.stdout,
    )
    assert len(found) == 1
    first, second = json.loads(path.read_text())["cases"]
    for peer, least in zip(first["peers"], found[0], strict=True):
        assert peer["min_ms"] == pytest.approx(float(least), rel=1e-4)
        assert peer["ratio"] == pytest.approx(peer["min_ms"] / first["min_ms"])
    assert "no layout" in second["peers"][0]["refusal"]
    assert re.search(r"\ntorch 2\S+: peer ratio .* mean:\S+ cases:1\n", done.stdout)
    assert re.search(r"\nonednn 3\S+: peer ratio .* mean:\S+ cases:2\n", done.stdout)
    assert re.search(r"\ntorch 2\S+: cases without peer:1\n", done.stdout)


def test_without_the_package() -> None:
    program = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from dnnl.tools.bench.command import run\n"
        "sys.exit(run(['--peer=torch', '--softmax', '3x4']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "dnnl bench: error: --peer=torch needs PyTorch: pip install torch" in done.stderr


@pytest.mark.parametrize("value", ["nobody", "torch,torch", "onednn,nobody"])
def test_names_of_peers(value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", "bench", f"--peer={value}", "--softmax", "3x4"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert (
        "expected onednn, onednn-openmp, torch, or several with commas between them" in done.stderr
    )
