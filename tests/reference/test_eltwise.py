"""The eltwise references and their derivatives against PyTorch and its autograd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl.reference import eltwise as reference
from dnnl.types.kinds import Alg
from tests.reference.agreement import assert_agree, random, tensor

Peer = Callable[[torch.Tensor], torch.Tensor]

# algorithm, alpha, beta, the peer's function, and whether sources must be positive
CASES: list[tuple[str, float, float, Peer, bool]] = [
    ("relu", 0.0, 0.0, F.relu, False),
    ("relu", 0.25, 0.0, lambda s: F.leaky_relu(s, 0.25), False),
    ("tanh", 0.0, 0.0, torch.tanh, False),
    ("elu", 0.5, 0.0, lambda s: F.elu(s, 0.5), False),
    ("square", 0.0, 0.0, torch.square, False),
    ("abs", 0.0, 0.0, torch.abs, False),
    ("sqrt", 0.0, 0.0, torch.sqrt, True),
    ("linear", 3.0, -2.0, lambda s: 3 * s - 2, False),
    ("soft_relu", 1.0, 0.0, F.softplus, False),
    ("soft_relu", 2.0, 0.0, lambda s: F.softplus(s, 2.0), False),
    ("soft_relu", -1.0, 0.0, F.logsigmoid, False),
    ("hardsigmoid", 1 / 6, 0.5, F.hardsigmoid, False),
    ("logistic", 0.0, 0.0, torch.sigmoid, False),
    ("exp", 0.0, 0.0, torch.exp, False),
    ("log", 0.0, 0.0, torch.log, True),
    ("gelu_tanh", 0.0, 0.0, lambda s: F.gelu(s, approximate="tanh"), False),
    ("gelu_erf", 0.0, 0.0, F.gelu, False),
    ("swish", 1.0, 0.0, F.silu, False),
    ("swish", 1.702, 0.0, lambda s: s * torch.sigmoid(1.702 * s), False),
    ("clip", -0.5, 0.75, lambda s: torch.clamp(s, -0.5, 0.75), False),
    ("clip_v2", -0.5, 0.75, lambda s: torch.clamp(s, -0.5, 0.75), False),
    ("pow", 2.0, 3.0, lambda s: 2 * s**3, False),
    ("pow", 2.0, 0.0, lambda s: 2 * s**0, False),
    ("pow", 0.5, -1.5, lambda s: 0.5 * s**-1.5, True),
    ("mish", 0.0, 0.0, F.mish, False),
    ("hardswish", 1 / 6, 0.5, F.hardswish, False),
]

# The peer's softplus turns linear beyond its threshold, which is e^-20 away from the truth, and the
# slope of its hardsigmoid is 1/6 in f32.
LOOSE = {"soft_relu": 1e-8, "hardsigmoid": 1e-7}


def sources(positive: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    values = np.concatenate([random(1, 500), 12 * random(2, 500)])
    return np.abs(values) + 1e-3 if positive else values


@pytest.mark.parametrize(("alg", "alpha", "beta", "peer", "positive"), CASES)
def test_forward(alg: str, alpha: float, beta: float, peer: Peer, positive: bool) -> None:
    src = sources(positive)
    got = reference.eltwise(f"eltwise_{alg}", src, alpha, beta)
    assert_agree(got, peer(tensor(src)), rtol=LOOSE.get(alg, 1e-12))


@pytest.mark.parametrize(("alg", "alpha", "beta", "peer", "positive"), CASES)
def test_derivative(alg: str, alpha: float, beta: float, peer: Peer, positive: bool) -> None:
    src = sources(positive)
    leaf = tensor(src).requires_grad_()
    (gradient,) = torch.autograd.grad(peer(leaf).sum(), leaf)
    got = reference.eltwise_derivative(f"eltwise_{alg}", src, alpha, beta)
    assert_agree(got, gradient, rtol=LOOSE.get(alg, 1e-12))


@pytest.mark.parametrize("alg", reference.DERIVATIVES_FROM_DST)
def test_derivative_from_dst_agrees_with_that_from_src(alg: str) -> None:
    src = sources(positive="sqrt" in alg)
    alpha, beta = (-0.5, 0.75) if "clip" in alg else (0.5, 0.0)
    from_src = reference.eltwise_derivative(alg.removesuffix("_use_dst_for_bwd"), src, alpha, beta)
    dst = reference.eltwise(alg, src, alpha, beta)
    from_dst = reference.eltwise_derivative(alg, dst, alpha, beta)
    np.testing.assert_allclose(from_dst, from_src, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("alg", "alpha", "beta", "peer", "positive"), CASES)
def test_backward(alg: str, alpha: float, beta: float, peer: Peer, positive: bool) -> None:
    src = sources(positive)
    diff_dst = random(3, src.size)
    leaf = tensor(src).requires_grad_()
    (want,) = torch.autograd.grad(peer(leaf), leaf, tensor(diff_dst))
    got = reference.eltwise_backward(f"eltwise_{alg}", src, diff_dst, alpha, beta)
    assert_agree(got, want, rtol=LOOSE.get(alg, 1e-12))


@pytest.mark.parametrize("alg", reference.DERIVATIVES_FROM_DST)
def test_backward_from_dst_agrees_with_pytorch(alg: str) -> None:
    name = alg.removesuffix("_use_dst_for_bwd").removeprefix("eltwise_")
    for case, alpha, beta, peer, positive in CASES:
        if case != name:
            continue
        leaf = tensor(sources(positive)).requires_grad_()
        dst = peer(leaf)
        diff_dst = random(3, leaf.numel())
        (want,) = torch.autograd.grad(dst, leaf, tensor(diff_dst))
        got = reference.eltwise_backward(alg, dst.detach().numpy(), diff_dst, alpha, beta)
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-9, atol=1e-12)


def test_round_goes_to_even_and_has_no_derivative() -> None:
    got = reference.eltwise("eltwise_round", np.array([0.5, 1.5, -0.5, 2.4999]))
    np.testing.assert_array_equal(got, [0, 2, 0, 2])
    with pytest.raises(ValueError, match="eltwise_round"):
        reference.eltwise_derivative("eltwise_round", got)


def test_the_edges_of_clip_belong_to_their_own_sides() -> None:
    edges = np.array([-1.0, 0.0, 1.0])
    clip, clip_v2 = (
        reference.eltwise_derivative(alg, edges, -1.0, 1.0)
        for alg in ("eltwise_clip", "eltwise_clip_v2")
    )
    np.testing.assert_array_equal(clip, [0, 1, 1])
    np.testing.assert_array_equal(clip_v2, [0, 1, 0])


def test_the_edges_of_the_other_functions() -> None:
    edges = np.array([-2.0, 0.0, 2.0])
    for alg, want in (
        ("hardswish", [0, 0.5, 1]),  # the gate is 0 and 1 at the ends
        ("hardsigmoid", [0, 0.25, 0]),
        ("relu", [0.25, 0.25, 1]),
        ("abs", [-1, 0, 1]),
        ("relu_use_dst_for_bwd", [0.25, 0.25, 1]),
        ("elu_use_dst_for_bwd", [-1.75, 0.25, 1]),
    ):
        got = reference.eltwise_backward(f"eltwise_{alg}", edges, np.ones(3), 0.25, 0.5)
        np.testing.assert_array_equal(got, want, err_msg=alg)


def test_large_magnitudes_stay_finite() -> None:
    src = np.array([-1000.0, 1000.0])
    for alg in ("logistic", "swish", "mish", "gelu_tanh", "gelu_erf", "soft_relu", "tanh"):
        assert np.isfinite(reference.eltwise(f"eltwise_{alg}", src, 1.0)).all(), alg
        assert np.isfinite(reference.eltwise_derivative(f"eltwise_{alg}", src, 1.0)).all(), alg


def test_every_algorithm_has_a_row() -> None:
    assert {alg.name for alg in Alg if alg.is_eltwise} == set(reference.ALGS)


def test_every_exception_of_the_backward_tolerances_is_an_algorithm() -> None:
    assert reference.DERIVATIVE_TOLERANCES.keys() <= set(reference.ALGS)
