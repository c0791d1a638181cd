"""oneDNN's own case files have as many cases for us as for benchdnn, and our own do
not shrink unseen."""

from __future__ import annotations

import itertools
import shlex

import pytest

from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.command import run
from dnnl.tools.bench.drivers import DRIVERS, description
from dnnl.tools.bench.lexer import INPUTS

COUNTS = {
    ("binary", "test_binary_ci"): 6040,
    ("bnorm", "test_bnorm_ci"): 4445,
    ("concat", "test_concat_ci"): 2880,
    ("conv", "shapes_resnet_50"): 20,
    ("eltwise", "test_eltwise_ci"): 4800,
    ("lnorm", "test_lnorm_ci"): 10128,
    ("lrn", "test_lrn_ci"): 432,
    ("prelu", "test_prelu_ci"): 1152,
    ("reorder", "test_reorder_ci"): 9834,
    ("reorder", "test_reorder_fp4"): 72,
    ("reorder", "test_reorder_int4"): 294,
    ("shuffle", "test_shuffle_ci"): 96,
    ("softmax", "test_softmax_ci"): 13888,
    ("sum", "test_sum_ci"): 1408,
}

OWN = {
    ("arg_reduction", "test_arg_reduction_ci"): 1856,
    ("attention", "test_attention_ci"): 141,
    ("conv", "test_conv_backward_ci"): 1177,
    ("conv", "test_conv_winograd_ci"): 380,
    ("cumulative", "test_cumulative_ci"): 2904,
    ("deconv", "test_deconv_backward_ci"): 1070,
    ("deconv", "test_deconv_forward_ci"): 1450,
    ("deconv", "test_deconv_winograd_ci"): 170,
    ("exact", "test_exact_ci"): 891,
    ("gather", "test_gather_ci"): 642,
    ("gnorm", "test_gnorm_ci"): 952,
    ("grid_sample", "test_grid_sample_ci"): 294,
    ("ip", "test_ip_backward_ci"): 816,
    ("ip", "test_ip_forward_ci"): 810,
    ("matmul", "test_matmul_forward_ci"): 754,
    ("pool", "test_pool_ci"): 3462,
    ("reduction", "test_reduction_ci"): 993,
    ("resampling", "test_resampling_ci"): 960,
    ("rnn", "test_rnn_ci"): 1284,
    ("scatter", "test_scatter_ci"): 2036,
}
"""Lists of this library's own."""


@pytest.mark.parametrize(("driver", "batch"), [*COUNTS, *OWN])
def test_number_of_cases(driver: str, batch: str) -> None:
    found = Interpreter().cases([f"--{driver}", f"--batch={batch}"])
    assert sum(1 for _ in found) == (COUNTS | OWN)[driver, batch]


def test_every_operation_has_a_list() -> None:
    missing = {
        name
        for name, driver in DRIVERS.items()
        if description(driver) is not None and not any((INPUTS / name).glob("*"))
    }
    assert not missing


def test_every_file_can_be_read() -> None:
    for path in sorted(INPUTS.glob("*/*")):
        line = [f"--{path.parent.name}", f"--batch={path.name}"]
        assert sum(1 for _ in Interpreter().cases(line)) > 0, path


def test_repro_lines_of_every_file_run_their_cases_again() -> None:
    for path in sorted(INPUTS.glob("*/*")):
        line = [f"--{path.parent.name}", f"--batch={path.name}"]
        for case in itertools.islice(Interpreter().cases(line), 0, None, 23):
            (again,) = Interpreter().cases(shlex.split(case.repro))
            assert again.repro == case.repro.replace('"', "")  # a shell takes quotes away


def test_listing_counts_as_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--mode=L", "--shuffle", "--batch=test_shuffle_ci"]) == 0
    out = capsys.readouterr().out
    assert "95:LISTED (0 ms) __REPRO: --mode=L --shuffle --dir=BWD_D" in out
    assert "tests:96 passed:0 skipped:0 mistrusted:0 unimplemented:0 " in out
    assert "failed:0 listed:96\n" in out
