"""The benchdnn language: tokens, options, lists, problems, tags, attributes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dnnl.language.descriptor import Descriptor
from dnnl.language.errors import BadValue, UnknownOption
from dnnl.language.problem import Dims
from dnnl.language.tags import expand
from dnnl.primitives.reorder import ReorderDesc
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import describe
from dnnl.tools.bench.drivers import DRIVERS
from dnnl.tools.bench.execute import Executor
from dnnl.tools.bench.lexer import tokens
from dnnl.tools.bench.result import State


def cases(line: str) -> list[Case]:
    return list(Interpreter().cases(line.split()))


def lines(line: str) -> list[str]:
    return [case.repro for case in cases(line)]


def descriptor(driver: str, token: str) -> Descriptor:
    problem = DRIVERS[driver].problem.parse(token)
    assert isinstance(problem, Descriptor)
    return problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b\nc", ["a", "b", "c"]),
        ("a # b\nc #d", ["a", "c"]),
        ("a#b", ["a#b"]),
        ("--x=1, \\\n 2, \\\n 3 y", ["--x=1,2,3", "y"]),
        ("--x=1,\\\n2", ["--x=1,2"]),
        ("--x=1, \\ # why\n# and\n2", ["--x=1,2"]),
        ('1x2_n"a:0" # name', ['1x2_n"a:0"']),
        ("", []),
    ],
)
def test_tokens_of_a_batch_file(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_batches_nest_and_are_found(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    (deep / "outer").write_text("--axis=0\n--batch=inner\n3x3")
    (deep / "inner").write_text("2x2 --axis=1")
    found = lines(f"--softmax --batch={deep}/outer --batch=inner")
    # The state is shared, and the folder of a file that was asked for is searched from then on.
    assert found == [
        "--softmax --axis=0 2x2",
        "--softmax 3x3",
        "--softmax 2x2",
    ]
    assert len(lines("--softmax --batch=shapes_ci")) == 4
    with pytest.raises(BadValue, match="cannot open"):
        lines("--softmax --batch=nothing")


def test_batches_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(b"\x89PNG\xd0")
    with pytest.raises(BadValue, match="cannot read batch file"):
        lines(f"--softmax --batch={tmp_path}/image")
    (tmp_path / "twice").write_text("--batch=leaf --batch=leaf")
    (tmp_path / "leaf").write_text("2x2")
    assert len(lines(f"--softmax --batch={tmp_path}/twice")) == 2
    (tmp_path / "circle").write_text("--batch=back")
    (tmp_path / "back").write_text("2x2 --batch=circle")
    with pytest.raises(BadValue, match="'circle' is read by itself"):
        lines(f"--softmax --batch={tmp_path}/circle")


def test_the_leftmost_option_is_slowest() -> None:
    found = lines("--softmax --axis=0,1 --sdt=f32,s8 --inplace=true,false 2x2")
    assert [("s8" in line, "axis" in line, "inplace" in line) for line in found] == [
        (type_, axis, inplace)
        for type_ in (False, True)
        for axis in (True, False)
        for inplace in (True, False)
    ]


def test_repro_lines() -> None:
    assert lines("--softmax --inplace=1 --attr-post-ops=sum --mb=7 2x3") == [
        "--softmax --inplace=true --attr-post-ops=sum 7x3"
    ]
    assert lines("--reorder 2") == ["--reorder --sdt=f32 --ddt=f32 --stag=abx --dtag=abx 2"]
    assert lines("--eltwise 2") == ["--eltwise --alg=relu --alpha=0 --beta=0 2"]
    assert lines("--sum 2") == ["--sum --scales=1 2"]
    late = "--attr-dropout=0.5 --attr-deterministic=1 --attr-rounding-mode=dst:stochastic:7"
    shown = "--attr-rounding-mode=dst:stochastic:7 --attr-deterministic=true --attr-dropout=0.5"
    assert lines(f"--eltwise {late} 2") == [f"--eltwise --alg=relu --alpha=0 --beta=0 {shown} 2"]
    assert lines("--mode=p --fix-times-per-prb=3 --lrn --impl=a,b --mb=4 mb2ic3") == [
        "--mode=P --fix-times-per-prb=3 --lrn --impl=a,b mb4ic3"
    ]
    assert lines("--mode=R --lrn ic3") == ["--mode=R --mode-modifier=M --lrn ic3"]
    assert lines("--mode=f --lrn ic3") == [
        "--mode=P --mode-modifier=PM --max-ms-per-prb=10 --lrn ic3"
    ]


@pytest.mark.parametrize(
    "line",
    [
        '--softmax --dir=fwd_i --stag=axb --axis=0 3x4_n"x"',
        "--binary --alg=SELECT --stag=axb:any --attr-post-ops=add:f32:3:abx+sum:0.5:2 2x3:1x3",
        "--conv --dir=FWD_I --stag=axb mb3ic16ih7iw9oc32oh7ow5kh3kw5ph1pw0",
        "--canonical=true --matmul --bia-dt=f32 --bia_mask=3 2x3x4:2x4x5",
        "--lnorm --dt=f32:bf16 --flags=HC --stat_tag=axb 4x5",
        '--pool --alg=avg_np ic3ih7kh3sh2ph1_n"p"',
        "--reduction --alg=norm_lp_sum --p=2 --eps=0.5 2x3:1x3",
        "--concat --axis=0 --stag=abx:axb 2x3:4x3:5x3",
        "--sum --sdt=f32:s8 --stag=abx:axb --scales=0.25:2 3x4",
    ],
)
def test_repro_lines_give_themselves(line: str) -> None:
    (once,) = lines(line)
    assert lines(once) == [once] or "--canonical" in line
    again = cases(once)[0]
    assert again.values == cases(line)[0].values
    assert again.problem == cases(line)[0].problem


def test_empty_items_and_values() -> None:
    assert len(cases("--softmax --attr-post-ops=,sum 2")) == 2
    assert len(cases("--softmax --attr-post-ops=sum, 2")) == 2
    assert len(cases("--bnorm --flags=,G, ic2")) == 3
    assert lines("--softmax --axis=0 --axis= 2") == ["--softmax 2"]
    for option in DRIVERS["softmax"].options:
        assert lines(f"--softmax --{option.name}= 2") == ["--softmax 2"]
    assert lines("--softmax --attr-fpmath=,bf16 2")[0] == "--softmax 2"
    with pytest.raises(UnknownOption, match="tag"):
        cases("--softmax --stag=abx, 2")
    with pytest.raises(BadValue, match="whole"):
        cases("--softmax --axis=1, 2")


def test_reset_spares_globals_and_the_template() -> None:
    line = "--softmax --axis=0 --match=7 --perf-template=%prb% --max-ms-per-prb=50 --reset 2"
    (case,) = cases(line)
    assert (case.line, case.settings.max_ms, case.template) == ("2", 50, "%prb%")


def test_a_mismatch_drops_the_rest_of_a_problem() -> None:
    # The second combination does not match, so the third, which would, is never seen.
    found = lines("--softmax --match=axis=[02] --axis=0,1,2 2x2 3x3")
    assert found == ["--softmax --axis=0 2x2", "--softmax --axis=0 3x3"]
    assert len(lines(r"--softmax --match=2x2\|4 2x2 3x3 4x4")) == 2
    assert lines("--binary --match=f32+sum --attr-post-ops=add:f32+sum 2:2")
    assert lines("--softmax --match= 2")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("2x3", 2),
        ("--axis=1 --softmax 2", 2),
        ("--nothing 2", 2),
        ("--softmax --group=1 2", 2),
        ("--softmax --stag=abz 2", 2),
        ("--softmax --axis=+1 2", 1),
        ("--softmax --axis=04 2", 1),
        ("--softmax --inplace=yes 2", 1),
        ("--softmax --sdt=F32 2", 1),
        ("--softmax --sdt=f33 2", 1),
        ("--softmax --dir=FWD 2", 1),
        ("--softmax 2xy", 1),
        ("--softmax 2:3", 1),
        ("--binary 2", 1),
        ("--mode=X --softmax 2", 1),
        ("--softmax --attr-post-ops=nothing 2", 1),
        ("--softmax --attr-post-ops=relu:1:2:3:4 2", 1),
        ("--softmax --attr-post-ops=add:f32:1:ab:2xa 2x3", 1),
        ("--softmax --attr-scales=nothing:0 2", 1),
        ("--softmax --match=[a 2", 1),
        (r"--softmax --match=\( 2", 1),
        ("--softmax --match=\\ 2", 1),
        ("--softmax --attr-scratchpad=USER 2", 1),
        ("--reorder --oflag=s8s8 2", 1),
        ("--matmul --encoding=cooo 2:2", 1),
        ("--softmax --attr-scales=src:common:-1 2", 1),
        ("--softmax --attr-zero-points=src:common:0.5 2", 1),
    ],
)
def test_what_cannot_be_read(line: str, status: int) -> None:
    with pytest.raises(BadValue) as caught:
        cases(line)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--softmax --match=[a 2", "no basic regular expression: unterminated character set"),
        ("--softmax --attr-scales=foo:0 2", "unknown argument 'foo'; there are src, src0"),
        ("--softmax --attr-dropout=1.5 2", "a probability is between 0 and 1"),
        ("--softmax --attr-dropout=0.5:1:any:2:true:3 2", "expected P"),
        ("--softmax --attr-post-ops=rleu 2", "unknown post-op 'rleu'; did you mean 'relu'"),
        ("--reorder --oflag=s8s8 2", "expected s8s8_comp:MASK, zp_comp:MASK"),
        ("", "the line names no driver, as in --softmax"),
        ("--mode=L", "the line names no driver"),
        ("--softmax --axis=1", "'--axis=1' ends the line without a problem as 2x3x4"),
        ("--softmax 2 --eltwise 2", "'--eltwise' is a second driver behind --softmax; run it"),
    ],
)
def test_messages_say_what_is_right(line: str, message: str) -> None:
    with pytest.raises(BadValue, match=message):
        cases(line)


def test_any_case_where_it_is_allowed() -> None:
    (case,) = cases("--softmax --dir=Bwd_D --alg=logsoftmax --attr-post-ops=SUM 2")
    assert case.line == "--dir=BWD_D --alg=LOGSOFTMAX --attr-post-ops=sum 2"


@pytest.mark.parametrize(
    ("tag", "ndims", "expected"),
    [
        ("abx", 4, "abcd"),
        ("axb", 4, "acdb"),
        ("xba", 4, "cdba"),
        ("aBx16b", 4, "aBcd16b"),
        ("abxc", 4, "abdc"),
        ("axb", 1, "a"),
        ("abx", 1, "a"),
        ("bax", 3, "bac"),
        ("aBx16b", 1, "a"),
        ("ABx4b16a4b", 3, "ABc4b16a4b"),
        ("nhwc", 4, "nhwc"),
        ("any", 4, "any"),
        ("aby", 1, "a"),
        ("aby", 2, "ba"),
        ("aby", 5, "abced"),
        ("bay", 4, "badc"),
        ("aBy16b", 4, "aBdc16b"),
    ],
)
def test_meta_tags(tag: str, ndims: int, expected: str) -> None:
    assert expand(tag, ndims) == expected


@pytest.mark.parametrize(
    ("token", "tensors", "name", "result"),
    [
        ("2x3x4", ((2, 3, 4),), "", (2, 3, 4)),
        ('2x3_n"a n"', ((2, 3),), '"a n"', (2, 3)),
        ("2x3nname_n", ((2, 3),), "name_n", (2, 3)),
        ("2x3x4:2", ((2, 3, 4), (2,)), "", (2, 3, 4)),
        ("1x3:2x1", ((1, 3), (2, 1)), "", (2, 3)),
        ("1x0:1x1", ((1, 0), (1, 1)), "", (1, 0)),
    ],
)
def test_shapes(
    token: str, tensors: tuple[tuple[int, ...], ...], name: str, result: tuple[int, ...]
) -> None:
    shapes = Dims(1, 9).parse(token)
    assert (shapes.tensors, shapes.name, shapes.result) == (tensors, name, result)
    assert Dims(1, 9).parse(shapes.text) == shapes


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("--conv --alg=convolution_direct ic8ih3oc8kh3", ""),
        ("--conv --alg=Convolution_Winograd ic8ih3oc8kh3", "WINO"),
        ("--deconv --alg=deconvolution_direct ic8ih3oc8kh3", ""),
        ("--pool --alg=pooling_max ic8ih3oh1kh3", ""),
        ("--pool --alg=pooling_avg_exclude_padding ic8ih3oh1kh3", "avg_np"),
        ("--lrn --alg=lrn_within_channel ic8ih3", "WITHIN"),
        ("--resampling --alg=resampling_linear ic8ih3oh6", "linear"),
        ("--reduction --alg=reduction_norm_lp_max 2x3:1x3", "norm_lp_max"),
        ("--eltwise --alg=eltwise_gelu_erf 2x3", "gelu_erf"),
        ("--binary --alg=binary_mul 2x3:2x3", "MUL"),
    ],
)
def test_full_names_of_algorithms(line: str, short: str) -> None:
    (repro,) = lines(line)
    assert short.lower() in repro.lower()
    assert line.split("=")[1].split(maxsplit=1)[0].lower() not in repro.lower()


@pytest.mark.parametrize("driver", ["conv", "deconv"])
def test_sizes_of_dimensions_that_a_problem_lacks_say_nothing(driver: str) -> None:
    token = "mb1ic8_ih3oh3oc8_kh3ph1_dh2dw2sd3kd7"
    assert descriptor(driver, token).text == descriptor(driver, "mb1ic8ih3oh3oc8kh3ph1dh2").text


def test_a_name_has_any_characters() -> None:
    name = '"deconv_ic%4!=0_x--dir=BWD_D, n#:"'
    (case,) = Interpreter().cases(["--deconv", f"ic8ih3iw5oc8kh3kw5pd0n{name}"])
    assert (case.sizes.name, str(case["dir"])) == (name, "FWD_B")
    assert case.line.endswith(f"n{name}")


def test_groups_as_profiles_and_with_deep_weights() -> None:
    found = [
        grouped.sizes(32, grouped.number((4, 64, 8)))
        for case in cases(
            "--matmul --grouped=0:4:8+0+16+8,M:4:balanced,0:5:hot.90:30,0:40:decode 32x64:4x64x8"
        )
        for grouped in (case["grouped"],)
    ]
    assert found == [[8, 0, 16, 8], [8] * 4, [28, 1, 1, 1, 1], [1] * 32 + [0] * 8]
    for wrong in ("0:4:8+8", "2:4", "0:4:cold", "0:4:hot.101"):
        with pytest.raises(BadValue, match="grouped"):
            cases(f"--matmul --grouped={wrong} 32x64:4x64x8")


@pytest.mark.parametrize(
    ("value", "weights", "sizes"),
    [
        ("M:balanced", (3, 64, 8), [16, 16, 16]),
        ("0:hot.50", (3, 64, 8), [24, 12, 12]),
        ("1:balanced", (48, 8), [2] * 16 + [1] * 16),
        ("1:30+0+18", (48, 8), [30, 0, 18]),
    ],
)
def test_groups_without_a_count(value: str, weights: tuple[int, ...], sizes: list[int]) -> None:
    problem = "48x64:" if len(weights) > 2 else "64x48:"
    (case,) = cases(f"--matmul --grouped={value} {problem}{'x'.join(map(str, weights))}")
    grouped = case["grouped"]
    assert grouped.sizes(48, grouped.number(weights)) == sizes
    assert lines(case.repro) == [case.repro]


@pytest.mark.parametrize(
    ("line", "reasons"),
    [
        ("--matmul --dt=f16:u2:f16 --attr-scales=wei:1:f16 2x3:3x4", ["data type u2"]),
        ("--reorder --sdt=f4_e3m0 --ddt=u3 2x3", ["data type f4_e3m0", "data type u3"]),
        ("--matmul --attr-zero-points=wei:common:1:s2 2x3:3x4", ["data type s2"]),
        ("--conv --attr-post-ops=relu+mul_inplace:f32 ic2ih3oc2oh3kh1ph0", ["post-op mul_inplace"]),
        ("--reduction --alg=Dynamic_Quantize 2x3:2x3", ["algorithm Dynamic_Quantize"]),
    ],
)
def test_what_only_onednn_has_is_listed_and_not_run(line: str, reasons: list[str]) -> None:
    (case,) = cases(line)
    assert case.repro == line or line.startswith("--reorder")
    assert case.lacking == [f"there is no {reason}" for reason in reasons]
    result = Executor().run(case)
    assert (result.state, result.reason) == (State.UNIMPLEMENTED, "; ".join(case.lacking))
    (listed,) = cases(f"--mode=L {line}")
    assert Executor().run(listed).state is State.LISTED


def test_reorders_name_both_types_at_once() -> None:
    found = cases("--reorder --dt=f32:s8,bf16 --sdt=u8 2x3")
    kinds = [
        [tensor.desc.data_type.name for tensor in describe(case, ReorderDesc).tensors]
        for case in found
    ]
    assert kinds == [["f32", "s8"], ["bf16", "bf16"]]


def test_masks_of_open_dims_that_are_left_out() -> None:
    found = cases("--matmul --runtime_dims_masks=,2,:1,3:0 2x3:3x4")
    masks = [case["runtime_dims_masks"].items for case in found]
    assert masks == [(0, 0), (2, 0), (0, 1), (3, 0)]


def test_as_many_sources_as_there_are_arguments() -> None:
    shapes, tags = ":".join(["2x3"] * 300), ":".join(["ab"] * 300)
    (case,) = cases(f"--concat --stag={tags} {shapes}")
    assert len(case.shapes.tensors) == len(case["stag"]) == 300
    with pytest.raises(BadValue, match="tensors"):
        cases(f"--concat {':'.join(['2'] * 1025)}")


def test_an_unnamed_problem_has_no_name() -> None:
    assert lines('--softmax 2_n"a" 3')[1] == "--softmax 3"


@pytest.mark.parametrize(
    ("driver", "token", "text"),
    [
        ("conv", "ic16ih14oc32kh3ph1", "ic16ih14oc32oh14kh3ph1"),
        ("conv", "ic16_ih14_oc32_oh7_kh3_sh2", "ic16ih14oc32oh7kh3sh2ph0"),
        ("conv", "mb1ic3ih224oc64oh112kh7sh2", "mb1ic3ih224oc64oh112kh7sh2ph2"),
        ("conv", "g4ic16iw9oc32kw3dw1", "g4ic16iw9oc32ow5kw3pw0dw1"),
        ("conv", "g1ic2ih3iw4oc5kh1kw2", "g1ic2ih3iw4oc5oh3ow3kh1kw2ph0pw0"),
        ("conv", "ic2iw4oc5kw2ih4kh2", "ic2ih4oc5oh3kh2ph0"),
        ("conv", "ic2id4oc5kd2pd1", "ic2id4oc5od5kd2pd1"),
        ("deconv", "ic16ih7oc32kh3sh2ph1", "ic16ih7oc32oh13kh3sh2ph1"),
        ("deconv", "ic16ih7oc32oh13kh3sh2", "ic16ih7oc32oh13kh3sh2ph1"),
        ("pool", "ic16ih14kh3sh2ph1", "ic16ih14oh7kh3sh2ph1"),
        ("ip", "mb112ic2048oc1000", "mb112ic2048oc1000"),
        ("ip", "ic3ih2iw5oc7", "ic3ih2iw5oc7"),
        ("bnorm", "ic19id4ih6iw6eps0.5", "ic19id4ih6iw6eps0.5"),
        ("bnorm", "mb1ic256ih28", "mb1ic256ih28"),
        ("lrn", "ic16_ih5_beta1.0", "ic16ih5beta1"),
        ("lrn", "ic16ih5ls7alpha0.001k14.2", "ic16ih5ls7alpha0.001k14.2"),
        ("resampling", "ic4ih3oh6", "ic4ih3oh6"),
        ("gnorm", "g2ic4ih3", "g2ic4ih3"),
        ("conv", 'ic1ih1oc1oh1kh1ph0n"net:a*3"', 'ic1ih1oc1oh1kh1ph0n"net:a*3"'),
    ],
)
def test_descriptors(driver: str, token: str, text: str) -> None:
    problem = descriptor(driver, token)
    assert problem.text == text
    assert descriptor(driver, text).numbers == problem.numbers
    assert problem.name == ("" if "n" not in token else '"net:a*3"')


@pytest.mark.parametrize(
    ("driver", "token"),
    [
        ("conv", "ic16oc32"),
        ("conv", "ih14oc32kh3"),
        ("conv", "ic16ih14oc32"),
        ("conv", "ic16ih0oc32kh3"),
        ("conv", "ic16ih14oc32kh3q1"),
        ("conv", "g3ic16ih14oc32kh3"),
        ("bnorm", "ic3id4ih5"),
        ("gnorm", "ic4ih3"),
        ("resampling", "ic4ih3"),
        ("bnorm", "mb2"),
        ("conv", "ic16ih14.5oc32kh3"),
    ],
)
def test_bad_descriptors(driver: str, token: str) -> None:
    with pytest.raises(BadValue, match="problem"):
        descriptor(driver, token)


def test_padding_behind() -> None:
    problem = descriptor("conv", "ic3ih224oc64oh112kh7sh2ph3")
    assert problem.padding_r == (2, 2)


@pytest.mark.parametrize(
    "line",
    [
        "--oflag=s8s8_comp:1+zp_comp:2",
        "--oflag=zp_comp:1",
        "--attr-dropout=0.5:12345:undef:7:true",
        "--attr-fpmath=bf16:true",
        "--attr-precomputed-reductions=src:per_tensor:s32:1x32",
        "--ctx-exe=2:0:1",
    ],
)
def test_further_values(line: str) -> None:
    (found,) = lines(f"--reorder {line} 4x64")
    assert line in found


def test_encodings() -> None:
    found = lines("--matmul --encoding=csr+0.9::,:coo:,packed:: 2x3:3x4")
    assert [line.split()[1] for line in found] == [
        "--encoding=csr+0.9::",
        "--encoding=:coo:",
        "--encoding=packed::",
    ]


def test_recurrent_cases_heed_no_match() -> None:
    assert lines("--rnn --match=nothing l1t2mb3sic4")


def test_strides_keep_their_colons() -> None:
    assert lines("--matmul --strides=8x1::,:: 2x3:3x4") == [
        "--matmul --strides=8x1:: 2x3:3x4",
        "--matmul --strides=:: 2x3:3x4",
    ]
    with pytest.raises(BadValue, match="numbers with an x"):
        lines("--reorder --strides=8xa:1 2x3")
