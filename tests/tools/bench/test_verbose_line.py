"""Verbose lines become the cases that they tell of."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dnnl import config
from dnnl.language.errors import BadValue
from dnnl.tools.bench import bench
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.command import run
from dnnl.tools.bench.verbose_line import case_tokens

ONEDNN = {
    "onednn_verbose,v1,primitive,exec,cpu,softmax,jit:avx512_core,forward_inference,"
    "src:f32::blocked:ab::f0 dst:f32:a:blocked:ab::f0,attr-scratchpad:user "
    "attr-post-ops:eltwise_linear:2+binary_add:f32:2:ab,alg:softmax_log axis:1,16x16,0.01": (
        "--softmax --dir=FWD_I --stag=ab --alg=softmax_log "
        "--attr-post-ops=linear:2+add:f32:2:ab --attr-scratchpad=user 16x16"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,softmax,ref:any,forward_training,"
    "src:f32::blocked:ab::f0 dst:f32:a:blocked:ab::f0,attr-dropout:ab:s64:1:0,"
    "alg:softmax_accurate axis:1,16x16,0.01": (
        "--softmax --stag=ab --alg=softmax_accurate --attr-dropout=0.5:12345:ab:1:false 16x16"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,softmax,ref:any,forward_training,"
    "src:f32::blocked:ab::f0 dst:f32:a:blocked:ab::f0,attr-dropout:undef,"
    "alg:softmax_accurate axis:1,16x16,0.01": (
        "--softmax --stag=ab --alg=softmax_accurate --attr-dropout=0.5:12345:undef:0:false 16x16"
    ),
    "onednn_verbose,v1,12.5,primitive,create:cache_miss,cpu,matmul,brg_matmul:avx512_core,undef,"
    "src:s8::blocked:ab::f0 wei:s8:a:blocked:ba::f0 bia:f32:a:blocked:ab::f0_mask2 "
    "dst:f32::blocked:ab::f0,attr-scales:src0:0:f32+wei:2:f32,,8x16:16x4,0.3": (
        "--matmul --dt=s8:s8:f32 --stag=ab --dtag=ab "
        "--attr-scales=src0:0:0.5+wei:2 --bia-dt=f32 8x16:16x4"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,convolution,brgconv:avx512_core,forward_training,"
    "src:f32:a:blocked:acdb::f0 wei:f32:a:blocked:Acdb16a::f0 bia:f32:a:blocked:a::f0 "
    "dst:f32:a:blocked:acdb::f0,,alg:convolution_direct,"
    "mb1_ic16oc32_ih14oh14kh3sh1dh0ph1_iw14ow14kw3sw1dw0pw1,0.07": (
        "--conv --bia-dt=f32 mb1ic16ih14oc32oh14kh3ph1"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:abcd:90x30x6x1:f0 "
    "dst:s8:p:blocked:aBcd16b::f0,,,2x3x4x5,0.1": (
        "--reorder --sdt=f32 --ddt=s8 --stag=abx --dtag=aBcd16b --strides=90x30x6x1: 2x3x4x5"
    ),
    "dnnl_verbose,create:cache_miss,cpu,reorder,simple:any,undef,src_f32::blocked:abcd:f0 "
    "dst_s8::blocked:abcd:f0,attr-oscale:0:0.500000 attr-post-ops:sum:0.5 ,,2x16x7x7,0.01": (
        "--reorder --sdt=f32 --ddt=s8 --stag=abcd --dtag=abcd --attr-scales=src:0:0.5 "
        "--attr-post-ops=sum:0.5 2x16x7x7"
    ),
    "dnnl_verbose,exec,cpu,convolution,jit_int8:avx512_core_vnni,forward_training,"
    "src_u8::blocked:acdb:f0 wei_s8::blocked:ABcd4b16a4b:f8:zpm1 bia_f32::blocked:a:f0 "
    "dst_u8::blocked:acdb:f0,attr-oscale:2 attr-zero-points:src:0:3 ,alg:convolution_direct,"
    "mb2_ic16oc32_ih7oh7kh3sh1dh0ph1_iw7ow7kw3sw1dw0pw1,0.109131": (
        "--conv --dt=u8:s8:u8 --bia-dt=f32 --stag=acdb --dtag=acdb --attr-scales=wei:per_oc "
        "--attr-zero-points=src:0:3 ic16ih7oc32oh7kh3ph1"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:abcd::f0 "
    "dst:s8::blocked:ABcd4b16a4b::f9:s8m1:zpm1,attr-scales:dst:1:f32,,32x16x3x3,0.01": (
        "--reorder --sdt=f32 --ddt=s8 --stag=abcd --dtag=ABcd4b16a4b "
        "--oflag=s8s8_comp:1+zp_comp:1 --attr-scales=dst:1 32x16x3x3"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,convolution,jit:avx512_core,backward_weights,"
    "src:f32::blocked:acdb::f0 wei:f32:a:blocked:ABcd16b16a::f0 bia:f32:a:blocked:a::f0 "
    "dst:f32::blocked:acdb::f0,,alg:convolution_direct,"
    "mb2_ic16oc32_ih14oh14kh3sh1dh0ph1_iw14ow14kw3sw1dw0pw1,0.03": (
        "--conv --dir=BWD_WB --bia-dt=f32 --stag=acdb --dtag=acdb ic16ih14oc32oh14kh3ph1"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,layer_normalization,jit:uni,forward_inference,"
    "src:bf16::blocked:abc::f0 dst:s8::blocked:abc::f0 stats:f32::blocked:ab::f0,,flags:GCH,"
    "3x4x8,0.03": (
        "--lnorm --dir=FWD_I --dt=bf16:s8 --tag=abc:abc --stat_tag=ab --flags=GCH 3x4x8"
    ),
    "onednn_verbose,v1,primitive,exec,cpu,reduction,jit:uni,undef,src:f32::blocked:abc::f0 "
    "dst:f32:a:blocked:abc::f0,,alg:reduction_norm_lp_max p:2 eps:0.5,3x4x8:3x1x8,0.03": (
        "--reduction --stag=abc --alg=norm_lp_max --p=2 --eps=0.5 3x4x8:3x1x8"
    ),
}


@pytest.mark.parametrize("line", ONEDNN)
def test_lines_of_onednn(line: str) -> None:
    (case,) = Interpreter().cases(case_tokens(line))
    assert case.repro == ONEDNN[line]


@pytest.mark.parametrize(
    "line",
    [
        "--reorder --dtag=aBx16b 2x17x3x4",
        "--softmax --attr-post-ops=add:f32:per_oc --axis=0 16x16",
        "--eltwise --alg=clip --alpha=1 --beta=2 --tag=axb 2x3x4",
        "--binary --alg=mul --stag=axb:any 3x4:1x4",
        "--sum --sdt=f32:f32 --stag=axb --scales=0.25:2 3x4x5",
        "--concat --axis=0 2x3:4x3",
        "--bnorm --dir=FWD_I --flags=GCH ic23ih5iw4",
        "--pool --dir=FWD_I --alg=avg_p ic16ih14kh3sh2ph1",
        "--conv --dir=FWD_B --attr-post-ops=sum+relu g2ic16ih14oc32kh3ph1",
        "--ip --dir=FWD_I ic16ih3oc32",
        "--matmul --bia-dt=f32 --stag=axb 10x20:20x30",
    ],
)
def test_our_own_lines_come_back(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with config.override("verbose", "profile_exec"):
        assert run(line.split()) == 0
        (first,) = executed(capsys)
        assert run(case_tokens(first)) == 0
        (second,) = executed(capsys)
    fields, again = (text.rpartition(",")[0].replace("f32:a:", "f32::") for text in (first, second))
    assert again.replace(":aBcd16b", "") == fields.replace(":aBcd16b", "")


def executed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    out = capsys.readouterr().out
    return [line for line in out.splitlines() if line.startswith("dnnl_verbose,v1,primitive,exec")]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "onednn_verbose,v1,info,cpu,runtime:OpenMP",
        "onednn_verbose,v1,primitive,exec,cpu,rnn,ref:any,forward_training,a,,b,c,1",
        "onednn_verbose,v1,primitive,exec,cpu,softmax,jit:uni,backward_data,a,,b,c,1",
        "onednn_verbose,v1,primitive,create:check,softmax,bad,file:1",
        (
            "dnnl_verbose,v1,primitive,create:cache_miss,cpu,reorder,boxes:avx2,undef,"
            "src:f32::blocked:*::f0 dst:f32::blocked:*::f0,,,*x3,1"
        ),
        (
            "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 "
            "dst:f32:p:blocked:aB16b:640x16:f0,,,3x4,0.1"
        ),
        (
            "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:f32::blocked:ab::f0 "
            "dst:f32::blocked:ab::f0,attr-scales:nothing,,3x4,0.1"
        ),
    ],
)
def test_other_lines(line: str) -> None:
    with pytest.raises(BadValue):
        case_tokens(line)


def test_the_option() -> None:
    line = next(iter(ONEDNN))
    arguments = ["--mode=I", "--verbose-line", line]
    out = CliRunner().invoke(bench, arguments, standalone_mode=False)
    assert out.return_value == 0
    assert "0:INITIALIZED" in out.output
