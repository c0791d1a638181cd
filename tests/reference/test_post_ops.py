"""Chains of post-ops against the same steps in PyTorch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.errors import Unimplemented
from dnnl.reference.post_ops import apply_post_ops, tolerance, undecided
from dnnl.reference.tolerance import PRODUCT_SUM
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOps
from tests.reference.agreement import assert_agree, random, tensor


@pytest.mark.parametrize("order", list(itertools.permutations(("sum", "relu", "mul", "prelu"))))
def test_entries_apply_in_their_order(order: tuple[str, ...]) -> None:
    values, old, factor = random(1, 2, 3, 4), random(2, 2, 3, 4), random(3, 1, 3, 1)
    weights = random(4, 1, 3, 1)
    post_ops = PostOps()
    operands = {}
    want = tensor(values)
    for index, entry in enumerate(order):
        if entry == "sum":
            post_ops.append_sum(0.5, 3)
            want = want + 0.5 * (tensor(old) - 3)
        elif entry == "relu":
            post_ops.append_eltwise("eltwise_relu", 0.25)
            want = F.leaky_relu(want, 0.25)
        elif entry == "mul":
            post_ops.append_binary("binary_mul", MemoryDesc(factor.shape, "f32", "abc"))
            operands[Arg.post_op(index) | Arg.SRC_1] = factor
            want = want * tensor(factor)
        else:
            post_ops.append_prelu(0b10)
            operands[Arg.post_op(index) | Arg.WEIGHTS] = weights
            want = F.prelu(want, tensor(weights).flatten())
    assert_agree(apply_post_ops(values, post_ops, operands, old), want)


def test_select_reads_its_condition() -> None:
    values, other = random(1, 2, 3), random(2, 2, 3)
    condition = (random(3, 2, 3) > 0).astype("f8")
    post_ops = PostOps()
    plain, chosen = MemoryDesc((2, 3), "f32", "ab"), MemoryDesc((2, 3), "s8", "ab")
    post_ops.append_binary("binary_select", plain, chosen)
    flag = Arg.post_op(0)
    got = apply_post_ops(values, post_ops, {flag | Arg.SRC_1: other, flag | Arg.SRC_2: condition})
    assert_agree(got, torch.where(tensor(condition) != 0, tensor(values), tensor(other)), rtol=0)


def test_what_leaves_the_range_of_the_core_is_infinite() -> None:
    post_ops = PostOps()
    post_ops.append_eltwise("eltwise_linear", 2)
    post_ops.append_eltwise("eltwise_swish", 1)
    values = [-3e38, 3e38, -3.0]
    inside = apply_post_ops(values, post_ops, {}, core=DataType.f64)
    assert inside.tolist() == pytest.approx([0, 6e38, -6 / (1 + np.exp(6))])
    beyond = apply_post_ops(values, post_ops, {}, core=DataType.f32)
    assert beyond.tolist() == pytest.approx([np.nan, np.inf, inside[2]], nan_ok=True)


def test_what_a_rounding_decides_is_left_open() -> None:
    post_ops = PostOps()
    post_ops.append_eltwise("eltwise_tanh")
    post_ops.append_binary("binary_ge", MemoryDesc((1,), "f32", "a"))
    post_ops.append_eltwise("eltwise_round")
    operands = {Arg.post_op(1) | Arg.SRC_1: np.array([0.5])}
    values = np.arctanh([0.4, 0.5, 0.50001, 0.6])
    found = undecided(values, tuple(post_ops), operands, exact=True)
    assert found.tolist() == [False, True, True, False]
    rounded = tuple(post_ops)[2:]
    assert not undecided([0.5, 1.5], rounded, {}, exact=True).any()
    assert undecided([0.5, 1.50001, 1.6], rounded, {}, exact=False).tolist() == [True, True, False]


def test_what_has_no_reference_is_refused() -> None:
    post_ops = PostOps()
    post_ops.append_sum()
    with pytest.raises(Unimplemented, match="PostOpSum"):
        apply_post_ops(random(1, 2), post_ops, {})


def test_each_entry_adds_its_tolerance() -> None:
    post_ops = PostOps()
    post_ops.append_eltwise("eltwise_relu")
    assert tolerance(PRODUCT_SUM, post_ops) == PRODUCT_SUM
    post_ops.append_eltwise("eltwise_exp")
    post_ops.append_sum()
    assert tolerance(PRODUCT_SUM, post_ops).ulps == PRODUCT_SUM.ulps + 8 + 2
