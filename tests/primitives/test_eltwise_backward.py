"""The gradients of eltwise: any layout and float, in place and after a forward pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody gives it

from dnnl import (
    Alg,
    Arg,
    EltwiseDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.reference import eltwise as reference
from tests.check import assert_close, check, logical, memory_of
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    LAYOUTS,
    array,
    describe,
    every_isa,
    execute,
    execute_all,
    source,
    tensor,
    typed_source,
)

DIMS = (2, 19, 5, 7)
ALGS = [alg for alg in Alg if alg.is_eltwise and alg is not Alg.eltwise_round]
FLOATS = ["f32", "bf16", "f16", "f8_e5m2", "f8_e4m3", "f64"]
SMALL = ["bf16", "f16", "f8_e5m2", "f8_e4m3"]


def numbers_of(alg: Alg) -> tuple[float, float]:
    """Parameters with which the function does what it can."""
    return (-0.5, 0.75) if "clip" in alg.name or "hard" in alg.name else (0.5, 1.5)


def run(
    alg: Alg | str, data: Memory, gradient: Memory, diff_src: MemoryDesc, alpha: float, beta: float
) -> Memory:
    """diff_src, which is checked."""
    kind = Alg[str(alg)]
    desc = EltwiseDesc.backward(alg, diff_src, gradient.desc, data.desc, alpha, beta)
    args = {int(Arg.DST if kind.uses_dst else Arg.SRC): data, int(Arg.DIFF_DST): gradient}
    (made,) = execute_all(PrimitiveDesc(desc, ENGINE), args).values()
    want = reference.eltwise_backward(kind, logical(data), logical(gradient), alpha, beta)
    check(made, want, reference.backward_tolerance(kind)(made.desc.data_type))
    return made


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("alg", ["eltwise_tanh", "eltwise_elu_use_dst_for_bwd"])
def test_layouts(alg: str, layout: str) -> None:
    data = source(DIMS, layout)
    run(alg, data, source(DIMS, layout, 2), data.desc, 0.5, 0.0)


@pytest.mark.parametrize(
    ("diff_src", "diff_dst", "data"),
    [("nchw", "nhwc", "nChw16c"), ("nChw8c", "nchw", "part"), ("gaps", "nhwc", "nhwc")],
)
def test_three_layouts(diff_src: str, diff_dst: str, data: str) -> None:
    ends = source(DIMS, data), source(DIMS, diff_dst, 2), describe(DIMS, diff_src)
    run("eltwise_logistic", *ends, 0.0, 0.0)


@pytest.mark.parametrize("alg", ALGS, ids=str)
def test_functions_write_zeros_to_padding(alg: Alg) -> None:
    gradient = source(DIMS, "nChw16c", 2)
    run(alg, source(DIMS, "nChw8c"), gradient, describe(DIMS, "nChw16c"), *numbers_of(alg))


@every_pair(
    every_isa,
    pytest.mark.parametrize(
        ("diff_src", "diff_dst", "data"),
        [*((kind, kind, kind) for kind in FLOATS), ("f16", "f32", "bf16"), ("f64", "f32", "bf16")],
    ),
    pytest.mark.parametrize("alg", ["eltwise_gelu_erf", "eltwise_clip_v2_use_dst_for_bwd"]),
)
def test_types(alg: str, diff_src: str, diff_dst: str, data: str, isa: str) -> None:
    ends = typed_source(DIMS, "nChw16c", data), typed_source(DIMS, "nhwc", diff_dst, 2)
    with config.override("max_cpu_isa", isa):
        run(alg, *ends, describe(DIMS, "nChw16c").with_data_type(diff_src), -0.5, 0.75)


@every_pair(
    data_type=["f32", "bf16", "f64"],
    layout=["nchw", "nChw16c", "gaps"],
    alg=["eltwise_mish", "eltwise_tanh_use_dst_for_bwd"],
)
def test_in_place(alg: str, layout: str, data_type: str) -> None:
    data, gradient = (typed_source(DIMS, layout, data_type, seed) for seed in (1, 2))
    want = reference.eltwise_backward(alg, logical(data), logical(gradient))
    desc = EltwiseDesc.backward(alg, gradient.desc, gradient.desc, data.desc)
    arg = Arg.DST if Alg[alg].uses_dst else Arg.SRC
    args: dict[int, Memory] = {arg: data, Arg.DIFF_DST: gradient}
    made = execute_all(PrimitiveDesc(desc, ENGINE), args, {Arg.DIFF_SRC: gradient})
    check(made[Arg.DIFF_SRC], want, reference.backward_tolerance(alg)(data_type))


@pytest.mark.parametrize(
    ("alg", "alpha", "beta", "function"),
    [
        ("relu", 0.0, 0.0, F.relu),
        ("relu", 0.125, 0.0, lambda s: F.leaky_relu(s, 0.125)),
        ("elu", 0.5, 0.0, lambda s: F.elu(s, 0.5)),
        ("tanh", 0.0, 0.0, torch.tanh),
        ("logistic", 0.0, 0.0, torch.sigmoid),
        ("gelu_erf", 0.0, 0.0, F.gelu),
        ("gelu_tanh", 0.0, 0.0, lambda s: F.gelu(s, approximate="tanh")),
        ("mish", 0.0, 0.0, F.mish),
        ("swish", 1.0, 0.0, F.silu),
        ("hardswish", 1 / 6, 0.5, F.hardswish),
        ("hardsigmoid", 1 / 6, 0.5, F.hardsigmoid),
        ("soft_relu", 1.0, 0.0, F.softplus),
        ("soft_relu", -1.0, 0.0, F.logsigmoid),
        ("clip", -1.0, 1.0, F.hardtanh),
        ("exp", 0.0, 0.0, torch.exp),
        ("abs", 0.0, 0.0, torch.abs),
        ("square", 0.0, 0.0, torch.square),
        ("pow", 1.0, 3.0, lambda s: s**3),
    ],
)
def test_as_pytorch(
    alg: str, alpha: float, beta: float, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    src, gradient = source((40, 100), "ab"), source((40, 100), "ab", 2)
    made = run(f"eltwise_{alg}", src, gradient, src.desc, alpha, beta)
    leaf = tensor(src).requires_grad_()
    function(leaf).backward(tensor(gradient))  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    assert_close(logical(made), array(leaf.grad), 4e-6)


@pytest.mark.parametrize("alg", [alg for alg in ALGS if alg.uses_dst], ids=str)
def test_what_the_forward_pass_left(alg: Alg) -> None:
    """The gradient of a result is that of the source it was made of."""
    src, gradient = source((3, 100), "ab"), source((3, 100), "ab", 2)
    alpha, beta = numbers_of(alg)
    values = np.abs(logical(src)) if "sqrt" in alg.name else logical(src)
    src = memory_of(values, src.desc, ENGINE)
    forward = EltwiseDesc.forward("forward_training", alg, src.desc, src.desc, alpha, beta)
    dst = execute(forward, {Arg.SRC: src})
    made = run(alg, dst, gradient, src.desc, alpha, beta)
    other = run(alg.name[: -len("_use_dst_for_bwd")], src, gradient, src.desc, alpha, beta)
    np.testing.assert_allclose(logical(made), logical(other), rtol=1e-5, atol=1e-6)


@every_isa
@pytest.mark.parametrize("alg", [alg for alg in Alg if alg.is_eltwise], ids=str)
def test_double_precision(alg: Alg, isa: str) -> None:
    """All digits of f64, far from zero as well."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal(4000) * 10.0 ** rng.integers(-12, 3, 4000)
    values = np.concatenate([values, [0.0, 700.0, -700.0, 800.0, -800.0]])
    if any(part in alg.name for part in ("sqrt", "log", "pow")):
        values = np.abs(values) + 1e-300
    plain = MemoryDesc(values.shape, "f64")
    src, gradient = memory_of(values, plain, ENGINE), memory_of(values[::-1], plain, ENGINE)
    numbers = numbers_of(alg)
    desc = EltwiseDesc.forward("forward_inference", alg, plain, plain, *numbers)
    with config.override("max_cpu_isa", isa):
        made = execute(desc, {Arg.SRC: src})
        check(made, reference.eltwise(alg, values, *numbers), reference.tolerance(alg)("f64"))
        if alg is not Alg.eltwise_round:
            run(alg, src, gradient, plain, *numbers)


@pytest.mark.parametrize("data_type", SMALL)
def test_small_floats_forward(data_type: str) -> None:
    for alg in ("eltwise_relu", "eltwise_gelu_tanh", "eltwise_exp"):
        memory = typed_source(DIMS, "nhwc", data_type)
        to = describe(DIMS, "nChw16c").with_data_type(data_type)
        desc = EltwiseDesc.forward("forward_inference", alg, memory.desc, to)
        want = reference.eltwise(alg, logical(memory))
        check(execute(desc, {Arg.SRC: memory}), want, reference.tolerance(alg)(data_type))


@pytest.mark.parametrize("alg", ["eltwise_tanh", "eltwise_tanh_use_dst_for_bwd"])
def test_any_follows_what_the_forward_pass_has(alg: str) -> None:
    blocked, open_desc = describe(DIMS, "nChw16c"), MemoryDesc(DIMS, "f32", "any")
    forward = EltwiseDesc.forward("forward_training", alg, blocked, open_desc)
    hint = PrimitiveDesc(forward, ENGINE)
    desc = EltwiseDesc.backward(alg, open_desc, open_desc, hint.dst_desc)
    pd = PrimitiveDesc(desc, ENGINE, hint=hint)
    assert pd.diff_src_desc == pd.diff_dst_desc == blocked
    assert PrimitiveDesc(desc, ENGINE).diff_src_desc == blocked


@pytest.mark.parametrize("dims", [(0,), (3, 0, 5), ()])
def test_no_elements_and_a_scalar(dims: tuple[int, ...]) -> None:
    data = source(dims, "gaps")
    run("eltwise_swish", data, source(dims, "gaps", 2), data.desc, 1.0, 0.0)


def test_bad_arguments() -> None:
    a, other = MemoryDesc((2, 3), "f32"), MemoryDesc((3, 2), "f32")
    with pytest.raises(InvalidArguments, match=r"diff_src_desc = \(3, 2\).*the dims of src"):
        EltwiseDesc.backward("eltwise_relu", other, a, a)
    with pytest.raises(InvalidArguments, match=r"diff_dst_desc = \(3, 2\).*the dims of dst"):
        EltwiseDesc.backward("eltwise_exp_use_dst_for_bwd", a, other, a)
    with pytest.raises(InvalidArguments, match="a step has no gradient"):
        EltwiseDesc.backward("eltwise_round", a, a, a)
    with pytest.raises(InvalidArguments, match=r"alpha = -1\.0.*eltwise_relu takes any"):
        EltwiseDesc.backward("eltwise_relu_use_dst_for_bwd", a, a, a, -1.0)
    with pytest.raises(InvalidArguments, match=r"beta = 0\.5"):
        EltwiseDesc.backward("eltwise_clip", a, a, a, 1.0, 0.5)
    with pytest.raises(InvalidArguments, match=r"src_desc.*layout"):
        EltwiseDesc.backward("eltwise_relu", a, a, MemoryDesc((2, 3), "f32", "any"))
    with pytest.raises(InvalidArguments, match="expected one of eltwise_relu"):
        EltwiseDesc.backward("softmax_log", a, a, a)


def test_integers_have_no_gradient() -> None:
    a = MemoryDesc((2, 3), "s8")
    with pytest.raises(Unimplemented, match="unsupported data type: s8"):
        PrimitiveDesc(EltwiseDesc.backward("eltwise_relu", a, a, a), ENGINE)
