"""``dnnl explain`` tells in words what lines of many versions of oneDNN, and ours, say."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from dnnl import config
from dnnl.errors import Error, InvalidArguments
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.command import run
from dnnl.tools.explain import explain, phrases

CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,brg_conv_fwd:avx512_core,forward_inference,"
    "src:f32::blocked:acdb::f0 wei:f32:ap:blocked:Acdb16a::f0 bia:f32:a:blocked:a::f0 "
    "dst:f32::blocked:acdb::f0,attr-scratchpad:user attr-scales:wei:1:f32 "
    "attr-post-ops:sum:0.5+eltwise_relu:0.1+binary_add:f32:2:abcd+prelu:2,"
    "alg:convolution_direct,mb2_ic16oc24_ih14oh7kh3sh2dh0ph1_iw14ow7kw3sw2dw0pw1,0.05"
)


GRADIENT = (
    "dnnl_verbose,v1,primitive,exec,cpu,convolution,brgemm:avx2,backward_weights,"
    "src:f32::blocked:acdb::f0 wei:f32:a:blocked:cdba::f0 bia:f32:a:blocked:a::f0 "
    "dst:f32::blocked:acdb::f0,,alg:convolution_direct,"
    "mb2_ic16oc24_ih14oh7kh3sh2dh0ph1_iw14ow7kw3sw2dw0pw1,0.05"
)


def explained(*words: str, given: str | None = None) -> str:
    done: Result = CliRunner().invoke(explain, words, input=given, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


NAMES = sorted({own.name for desc in OPERATIONS.values() for own in desc.operation.implementations})


@pytest.mark.parametrize("name", NAMES)
def test_every_implementation_has_a_meaning(name: str) -> None:
    assert phrases.implementation(f"{name}:avx2").endswith(", for avx2")


def test_gradients() -> None:
    text = explained(GRADIENT)
    for part in (
        "; backward: the gradient of the weights, and of the bias",
        "image 14x14 to 7x7, window 3x3",
        "wei         f32 24x16x3x3, cdba = hwio: outermost h, innermost o",
        "work        614 kFLOP, ",
        "phases      convolution_by_weights",
        "bench       dnnl bench --conv --dir=BWD_WB --bia-dt=f32 --stag=acdb --dtag=acdb ",
    ):
        assert part in text, part


def test_a_convolution_with_attributes() -> None:
    text = explained(CONVOLUTION)
    for part in (
        "line        oneDNN on cpu: executed, 0.05 ms",
        "; forward, for inference",
        "batch 2, 16 to 24 channels, image 14x14 to 7x7, window 3x3, steps 2x2, padding before 1x1",
        "brg_conv_fwd:avx512_core: batch-reduce products",
        "src         f32 2x16x14x14, acdb = nhwc: channels last, 25.1 kB",
        "offset(n, c, h, w) = n*3136 + h*224 + w*16 + c",
        "Acdb16a = Ohwi16o: blocks, outermost first o/16, h, w, i, 16o, padded to 32x16x3x3",
        "temporary memory is given by the user",
        "wei is multiplied by one f32 scale for each o",
        "post-op 0: sum: x + 0.5 * dst, with dst as it was before",
        "post-op 1: relu: x if x > 0, else 0.1*x",
        "post-op 2: add: x + y, where y is f32 values, one for each c, laid out abcd",
        "post-op 3: x if x > 0, else x times a weight for each c",
        "work        614 kFLOP, ",
        "; 12.3 GFLOP/s, ",
        "depthwise refuses: unsupported shape: not one channel a group",
        "bench       dnnl bench --conv --dir=FWD_I --bia-dt=f32 --stag=acdb --dtag=acdb ",
    ):
        assert part in text, part


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("ab:s64:1:0", "; the mask, laid out ab, says which; an execution gets the probability"),
        ("ab:s64:1:0", "the probability of it, a seed of s64 and an offset\n"),
        ("undef:s32:0:1", "before the post-ops; an execution gets the probability of it and a"),
        ("undef:s32:0:1", "and a seed of s32 as scalars of the host\n"),
        ("any", "laid out any, says which; an execution gets the probability of it and a seed\n"),
    ],
)
def test_dropout(told: str, words: str) -> None:
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,softmax,ref:any,forward_training,"
        f"src:f32::blocked:ab::f0 dst:f32:a:blocked:ab::f0,attr-dropout:{told},"
        "alg:softmax_accurate axis:1,16x16,0.01"
    )
    text = explained(line)
    assert "attributes  dropout: elements of dst become zero at random, before the post-ops" in text
    assert words in text


def test_rates_follow_from_bytes_and_time() -> None:
    line = (
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:abcd::f0 "
        "dst:s8:p:blocked:aBcd16b::f0,,,2x3x4x5,0.001"
    )
    text = explained(line)
    assert "dst         s8 2x3x4x5, aBcd16b: blocks, outermost first a, b/16, c, d, 16b, " in text
    assert "padded to 2x16x4x5, 640 B" in text
    assert "offset(a, b, c, d) = a*320 + (b/16)*320 + c*80 + d*16 + b%16" in text
    assert "work        1.12 kB, each tensor read or written once; 1.12 GB/s" in text
    assert re.search(r"here +nest:\w+: a loop nest generated for this problem", text)


VERSION_2 = {
    "dnnl_verbose,create:cache_miss,cpu,pooling_v2,jit:avx512_core,forward_inference,"
    "src_f32::blocked:abcd:f0 dst_f32::blocked:abcd:f0 ws_undef::undef::f0,,alg:pooling_max,"
    "mb2ic16_ih7oh3kh3sh2dh0ph0_iw7ow3kw3sw2dw0pw0,0.1": (
        "src         f32 2x16x7x7, abcd = nchw: row-major",
        "bench       dnnl bench --pool --dir=FWD_I --tag=abcd ic16ih7oh3kh3sh2ph0",
    ),
    "dnnl_verbose,create:cache_miss,cpu,softmax,ref:any,forward_inference,"
    "data_f32::blocked:abcd:f0 diff_undef::undef::f0,,alg:logsoftmax axis:1,2x16x7x7,0.003": (
        "softmax_log: logarithm of the softmax",
        "ref:any: plain loops, the slow path of oneDNN",
        "work        12.5 kB",
        "--alg=softmax_log 2x16x7x7",
    ),
    "onednn_verbose,exec,cpu,matmul,gemm:jit,undef,src_f32::blocked:ab:f0 wei_f32::blocked:ab:f0 "
    "bia_f32::blocked:ab:f0_mask2 dst_f32::blocked:ab:f0,attr-oscale:2 attr-post-ops:eltwise_relu ,"
    ",20x30:30x17:20x17,0.04": (
        "bia         f32 1x17",
        "the result is multiplied by one scale for each n, before the post-ops",
        "--attr-scales=wei:per_oc --attr-post-ops=relu --bia-dt=f32 20x30:30x17",
    ),
    "onednn_verbose,exec,cpu,batch_normalization,ncsp_bnorm:any,forward_inference,"
    "data_f32::blocked:abcd:f0 diff_undef::undef::f0,,flags:GS,mb2ic16ih7iw7,0.007": (
        "flag G: mean and variance are given",
        "flag S: scale and shift",
        "--bnorm --dir=FWD_I --tag=abcd --flags=GCH ic16ih7",
    ),
    "onednn_verbose,exec,cpu,gemm_api,,undef,src_s8::blocked:ab:f0 wei_s8::blocked:ab:f0 "
    "dst_s32::blocked:ab:f0,,,32x32:32x32,5.2": (
        "operation   matmul: product of matrices",
        "--matmul --dt=s8:s8:s32 --stag=ab --wtag=ab --dtag=ab 32x32:32x32",
    ),
}


@pytest.mark.parametrize("line", VERSION_2)
def test_older_notations(line: str) -> None:
    text = explained(line)
    for part in VERSION_2[line]:
        assert part in text, text


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            (
                "onednn_verbose,v1,primitive,exec,cpu,rnn,brgemm:avx512_core,forward_inference,"
                "src_layer:f32::blocked:abc::f0 wei_layer:f32:ap:blocked:abdEc32e::f0 "
                "bias:f32::blocked:abcd::f0,,alg:vanilla_lstm direction:unidirectional_left2right "
                "flags:,l1t5mb3sic16slc16dhc16dic16,0.1"
            ),
            ("LSTM cells", "1 layers, 5 steps, batch 3", "bench --rnn --alg=VANILLA_LSTM l1t5mb3"),
        ),
        (
            (
                "onednn_verbose,v1,primitive,exec,cpu,lrn,jit:avx2,forward_inference,"
                "src:f32::blocked:aBcd8b::f0 dst:f32::blocked:aBcd8b::f0,,alg:lrn_across_channels,"
                "mb2ic16ih7iw7ls5beta0.75,0.1"
            ),
            ("5 neighbours", "--lrn --dir=FWD_I --tag=aBcd8b ic16ih7"),
        ),
        (
            (
                "onednn_verbose,v1,primitive,exec,cpu,deconvolution,jit:avx2,backward_data,"
                "src:f32::blocked:acdb::f0 wei:f32:a:blocked:Acdb32a::f0 dst:f32::blocked:acdb::f0"
                ",,alg:deconvolution_direct,g2mb2_ic16oc32_ih14oh27kh3sh2dh0ph1_iw14ow27kw3sw2dw0pw1,0.4"
            ),
            ("backward: the gradient of src", "image 14x14 to 27x27", "--deconv --dir=BWD_D"),
        ),
        (
            (
                "onednn_verbose,v1,primitive,exec,gpu,sdpa,ocl:micro:any,undef,"
                "query:f16::blocked:abcd::f0,attr-scales:kq:11:f16,,1x2x384x128,0.4"
            ),
            ("sdpa, an operation that is not known here", "query       f16, abcd: row-major"),
        ),
    ],
)
def test_operations_that_dnnl_does_not_have(line: str, parts: tuple[str, ...]) -> None:
    text = explained(line)
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("onednn_verbose,v1,info,oneDNN v3.12.0 (commit 80af)", "header: oneDNN v3.12.0"),
        ("onednn_verbose,info,cpu,isa:Intel AVX2", "kernels for cpu are written for Intel AVX2"),
        ("onednn_verbose,info,prim_template:operation,engine", "header: the fields of the lines"),
        (
            "onednn_verbose,v1,primitive,create:check,softmax,bad axis,src/common/softmax.cpp:70",
            "a description of softmax breaks a rule: bad axis (src/common/softmax.cpp:70)",
        ),
        (
            "onednn_verbose,v1,primitive,create:dispatch,convolution,unsupported isa,src/a.cpp:7",
            "an implementation of convolution refuses: unsupported isa (src/a.cpp:7)",
        ),
        (
            "dnnl_verbose,v1,primitive,create:dispatch,cpu,convolution,brgemm,unsupported layout",
            "the implementation brgemm of convolution on cpu refuses: unsupported layout",
        ),
        ("dnnl_verbose,v1,primitive,exec:check,eltwise,unused argument 7", "an execution of eltw"),
        ("dnnl_verbose,v1,common,warn,kernel cache /x: full", "warn: kernel cache /x: full"),
        ("onednn_verbose,v1,graph,exec,cpu,1,convolution", "the graph interface"),
    ],
)
def test_lines_of_no_operation(line: str, part: str) -> None:
    assert part in explained(line)


def test_sizes_that_only_the_execution_knows() -> None:
    text = explained("--reorder --runtime-dim-mask=1 3x4")
    assert "problem     *x4" in text
    assert "src         f32, in a layout that only the execution knows" in text
    assert re.search("here        nest:", text)
    assert "bench       dnnl bench --reorder" in text
    assert "--runtime-dim-mask=1 3x4" in text


def test_cases_of_the_bench() -> None:
    text = explained("--softmax", "--axis=0,1", "8x10")
    assert text.count("operation   softmax along one axis") == 2
    assert "bench       dnnl bench --softmax --axis=0 8x10" in text
    failed = "3:FAILED (errors:2 total:24) (12 ms) __REPRO: --eltwise --alg=clip --beta=2 2x3x4"
    assert "eltwise_clip: x, at least 0 and at most 2" in explained(failed)
    assert "product of matrices" in explained("./benchdnn --matmul 3x4:4x5")
    assert "depthwise refuses: unsupported shape" in explained("dnnl bench --conv ic16ih7oc32kh3")
    assert "more cases" in explained("--reorder --stag=abx,axb,xba --dtag=abx,axb,xba 2x3x4")
    missing = explained("--zeropad 2x3")
    assert "here        dnnl has no primitive for --zeropad yet" in missing


def test_inside_of_our_kernel() -> None:
    text = explained("--matmul", "--wtag=ab", "--measure", "500x96:96x64")
    for part in (
        r"kernel +tile \d+x\d+; f32 by f32 to f32 by plain products",
        r"block +all panels of weights stay",
        r"phases +matmul_in0__f32__\d+x1__",
        r"packing +wei is copied from f32 ab to f32 B",
        r"bytes +394 kB moved, each tensor once \(345 kB\), copies written and read \(49.2 kB\)",
        r"arithmetic +6.14 Moperations, 15.6 operations per byte",
        r"machine +[\d.]+ [GT]op/s of f32, reads at .* where 524 kB are read, measured on",
        r"limit +(compute|memory): .* at least \(arithmetic .*, bytes .*\)",
        r"measured +[\d.]+ [mu]s, \d+% of the limit",
    ):
        assert re.search(part, text), (part, text)
    assert "u8 by s8 to s32 by " in explained("--matmul", "--dt=u8:s8:f32", "64x96:96x64")
    text = explained("--matmul", "--wtag=ab", "64x96:96x64")
    assert "threads pack panels of f32\n" in text
    assert "threads pack panels of weights just before they multiply them\n" in text
    assert "nothing is copied" not in text
    assert "\nmeasured  " not in explained("--matmul", "64x96:96x64")
    assert "inside      sizes that only an execution" in explained(
        "--reorder --runtime-dim-mask=1 3x4"
    )


def test_a_roofline_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "roofline.svg"
    explained("--matmul", "--dt=f32,bf16", "64x64:64x64", f"--roofline={path}")
    root = ElementTree.parse(path).getroot()
    titles = [title.text or "" for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.startswith("--matmul") for title in titles] == [True, True]
    text = path.read_text(encoding="utf-8")
    assert "u8 x s8, " in text
    assert "var(" not in text


@pytest.mark.parametrize(
    ("file", "line", "rule"),
    [
        ("roofline.png", "--matmul 3x4:4x5", r"\*\.svg"),
        ("none/roofline.svg", "--matmul 3x4:4x5", "no folder"),
        ("roofline.svg", "--softmax 3x4", "sums of products"),
    ],
)
def test_no_roofline(tmp_path: Path, file: str, line: str, rule: str) -> None:
    with pytest.raises(InvalidArguments, match=rule):
        explained(*line.split(), f"--roofline={tmp_path / file}")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "token"),
    [
        ("foo,bar", "'foo,bar'"),
        ("--softmax --nothing=1 3x4", "--nothing=1"),
        ("--softmax", "'--softmax' ends the line"),
        (CONVOLUTION.replace("src:f32", "src:f33"), "'src:f33::blocked:acdb::f0'"),
        (CONVOLUTION.replace("acdb::f0 wei", "azdb::f0 wei"), "azdb"),
        (CONVOLUTION.replace("eltwise_relu:0.1", "turn"), "'turn'"),
        (CONVOLUTION.replace("eltwise_relu:0.1", "eltwise_relu:x"), "x"),
        (CONVOLUTION.replace("wei:1:f32", "wei:z"), "'wei:z'"),
        (CONVOLUTION.replace("mb2_ic16", "mb2_zz16"), "zz16"),
        (CONVOLUTION.replace("0.05", "soon"), "'soon'"),
        (CONVOLUTION.replace("attr-scratchpad", "scratchpad"), "'scratchpad:user'"),
        ("onednn_verbose,v1,primitive,exec,cpu,softmax", "its implementation"),
        ("onednn_verbose,v1", "ends before"),
        (
            (
                "onednn_verbose,v1,primitive,exec,cpu,matmul,brg:avx2,undef,src:f32::blocked:a::f0 "
                "wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,32:8x64,0.1"
            ),
            "'32:8x64'",
        ),
        (
            (
                "onednn_verbose,v1,primitive,exec,cpu,concat,ref:any,undef,src:f32::blocked:ab::f0 "
                "src:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,axis:7,3x4:3x5,0.1"
            ),
            "axis = 7",
        ),
    ],
)
def test_errors_name_the_token(line: str, token: str) -> None:
    with pytest.raises(Error, match=re.escape(token)):
        explained(line)


def test_damaged_lines_are_explained_or_refused() -> None:
    lines = [CONVOLUTION, *VERSION_2]
    rng = random.Random(7)
    refused = 0
    for _ in range(600):
        line = rng.choice(lines)
        for _ in range(rng.choice((1, 2, 3))):
            place = rng.randrange(len(line))
            piece = rng.choice(["", *"09abx:,._-+*", "any", "s4", "99999999999"])
            line = line[:place] + piece + line[place + rng.choice((0, 1)) :]
        try:
            explained(line)
        except Error:
            refused += 1
    assert 100 < refused < 590


def test_a_whole_log_through_the_command() -> None:
    reorder = (
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 "
        "dst:f32::blocked:ba::f0,,,3x4,"
    )
    lines = [
        "onednn_verbose,v1,info,oneDNN v3.12.0",
        "training step 1",
        f"{reorder}0.25",
        CONVOLUTION,
        f"{reorder}0.75",
        "onednn_verbose,v1,primitive,exec,cpu,softmax",
        "--softmax 3x4",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", "explain", "-"],
        check=False,
        capture_output=True,
        text=True,
        input="\n".join(lines),
    )
    assert done.returncode == 2
    assert "dnnl explain: line 6: the line ends before its implementation" in done.stderr
    assert done.stdout.count("reorder: the same elements") == 1
    assert "oneDNN on cpu: executed 2 times, 0.25 ms at least, 1 ms in all" in done.stdout
    assert "softmax along one axis" in done.stdout
    assert "executions: 3, 1.05 ms in all" in done.stdout
    assert " 95.2%           1 ms       2 x  reorder jit:uni" in done.stdout
    assert "1 other lines were left alone" in done.stdout


def test_a_pasted_line_becomes_a_case_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with config.override("verbose", "profile_exec"):
        assert run(["--matmul", "--bia-dt=f32", "--bia_mask=3", "20x30:30x17"]) == 0
    line = next(t for t in capsys.readouterr().out.splitlines() if ",exec,cpu,matmul" in t)
    text = explained(line)
    assert "bia         f32 20x17" in text
    command = re.findall("bench +dnnl bench (.*)", text)[0]
    done = subprocess.run(
        [sys.executable, "-m", "dnnl", "bench", *command.split()],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "tests:1 passed:1" in done.stdout
    again = subprocess.run(
        [sys.executable, "-m", "dnnl", "bench", "--verbose-line", line],
        check=False,
        capture_output=True,
        text=True,
    )
    assert "tests:1 passed:1" in again.stdout
