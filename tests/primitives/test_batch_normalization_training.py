"""Batch normalization by statistics of the batch, and the gradients of every kind."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from dnnl import (
    Arg,
    BatchNormalizationDesc,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Unimplemented,
    config,
)
from dnnl.codegen.nest import work_items
from dnnl.primitives.desc import Tensor
from dnnl.reference import batch_normalization as reference
from dnnl.reference.arrays import Array
from dnnl.reference.rule import compare
from dnnl.reference.tolerance import EXACT, Bound
from dnnl.types.dtype import DataType
from tests.check import check, logical, memory_of, random_memory
from tests.pairs import every_pair
from tests.primitives.harness import (
    ENGINE,
    ISAS,
    LAYOUTS,
    array,
    describe,
    every_rounding_isa,
    execute_all,
    tensor,
)

DIMS = (3, 19, 5, 7)
EPSILON = 1e-3
AFFINE = "use_scale|use_shift"
GIVEN = "use_global_stats"
STATISTICS = (Arg.MEAN, Arg.VARIANCE)
RELU, ADDED = f"{AFFINE}|fuse_norm_relu", f"{AFFINE}|fuse_norm_add_relu"
FLAGS = ["none", "use_scale", "use_shift", AFFINE, RELU, ADDED]
Memories = dict[int, Memory]


def forward(
    src: MemoryDesc, dst: MemoryDesc, flags: str, prop: str = "forward_training"
) -> BatchNormalizationDesc:
    return BatchNormalizationDesc.forward(prop, src, dst, EPSILON, flags)


def backward(
    diff_src: MemoryDesc,
    diff_dst: MemoryDesc,
    src: MemoryDesc,
    flags: str,
    prop: str = "backward",
) -> BatchNormalizationDesc:
    return BatchNormalizationDesc.backward(prop, diff_src, diff_dst, src, EPSILON, flags)


def filled(number: int, tensor: Tensor) -> Memory:
    """Contents of an input."""
    if tensor.argument == Arg.WORKSPACE:
        values = np.random.default_rng(7).integers(0, 2, tensor.desc.dims)
        return memory_of(values, tensor.desc, ENGINE)
    positive = tensor.argument in (Arg.VARIANCE, Arg.SCALE)
    return random_memory(tensor.desc, ENGINE, number, "positive" if positive else "normal")


def bound(desc: BatchNormalizationDesc, tensor: Tensor) -> Bound:
    """The reference's own."""
    kind = tensor.desc.data_type
    length = desc.src_desc.nelems() // max(1, desc.src_desc.dims[1])
    if tensor.argument in STATISTICS:
        return reference.STATISTICS_TOLERANCE(kind, length)
    if tensor.argument in (Arg.DIFF_SCALE, Arg.DIFF_SHIFT):
        return reference.DIFF_SCALE_TOLERANCE(kind, length)
    if tensor.argument == Arg.DIFF_SRC:
        return reference.DIFF_SRC_TOLERANCE(kind, length)
    if tensor.argument == Arg.DIFF_SRC_1:
        return EXACT(kind)
    return reference.TRAINING_TOLERANCE(kind, length)


def run(
    desc: BatchNormalizationDesc,
    given: Mapping[int, Memory] | None = None,
    outputs: Mapping[int, Memory] | None = None,
    attr: PrimitiveAttr | None = None,
) -> tuple[Memories, dict[int, Array]]:
    """Execute, and check every output against the reference; the outputs and what is expected."""
    pd = PrimitiveDesc(desc, ENGINE, attr)
    inputs = [tensor for tensor in pd.desc.tensors if not tensor.output]
    args = {t.argument: filled(number, t) for number, t in enumerate(inputs)} | dict(given or {})
    values = {argument: logical(memory) for argument, memory in args.items()}
    results = execute_all(pd, args, outputs)
    want = desc.operation.reference.compute(pd.desc, values)
    for output in pd.desc.outputs:
        if output.argument == Arg.WORKSPACE:
            # Which sign an element has that cancels is a matter of rounding.
            dst = next(t for t in pd.desc.outputs if t.argument == Arg.DST)
            low, high = bound(desc, dst).interval(before_relu(values))
            sure = (low > 0) == (high > 0)
            got = logical(results[output.argument])
            np.testing.assert_array_equal(got[sure], want[output.argument][sure])
            fixed = memory_of(want[output.argument], output.desc, ENGINE)
            assert (results[output.argument].data != fixed.data).sum() <= (~sure).sum()
        elif attr is None or output.argument != Arg.DST:
            check(results[output.argument], want[output.argument], bound(desc, output))
    return results, want


def before_relu(values: Mapping[int, Array]) -> Array:
    mean, variance = reference.statistics(values[Arg.SRC])
    return reference.batch_normalization(
        values[Arg.SRC],
        values.get(Arg.MEAN, mean),
        values.get(Arg.VARIANCE, variance),
        values.get(Arg.SCALE),
        values.get(Arg.SHIFT),
        epsilon=EPSILON,
        added=values.get(Arg.SRC_1),
    )


@pytest.mark.parametrize("src", LAYOUTS)
@pytest.mark.parametrize("dst", ["nhwc", "nChw16c"])
def test_layouts_forward(src: str, dst: str) -> None:
    run(forward(describe(DIMS, src), describe(DIMS, dst), RELU))


@pytest.mark.parametrize("src", LAYOUTS)
@pytest.mark.parametrize("diff", ["nChw16c", "gaps"])
def test_layouts_backward(src: str, diff: str) -> None:
    own = describe(DIMS, src)
    run(backward(describe(DIMS, diff), describe(DIMS, "nhwc"), own, RELU))


@every_pair(
    every_rounding_isa,
    pytest.mark.parametrize("kind", ["f32", "bf16", "f16"]),
    pytest.mark.parametrize("layout", ["nchw", "nChw8c"]),
)
def test_types(isa: str, kind: str, layout: str) -> None:
    desc = describe((2, 21, 6, 5), layout).with_data_type(kind)
    with config.override("max_cpu_isa", isa):
        run(forward(desc, desc, ADDED))
        run(backward(desc, desc, desc, ADDED))


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("layout", "given"), [("nChw16c", ""), ("nchw", f"|{GIVEN}")])
def test_flags(layout: str, given: str, flags: str) -> None:
    desc, flags = describe(DIMS, layout), (flags + given).removeprefix("none|")
    run(forward(desc, desc, flags))
    run(forward(desc, desc, flags, "forward_inference"))
    run(backward(desc, desc, desc, flags))
    run(backward(desc, desc, desc, flags, "backward_data"))


@pytest.mark.parametrize(
    ("dims", "tag"),
    [((6, 33), "ab"), ((2, 17, 9), "aBc16b"), ((2, 17, 2, 3, 4), "acdeb"), ((1, 5, 1, 1), "abcd")],
)
def test_ranks(dims: tuple[int, ...], tag: str) -> None:
    desc = describe(dims, tag)
    run(forward(desc, desc, RELU))
    run(backward(desc, desc, desc, RELU))


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c", "part16"])
def test_folds_that_are_shared_out(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Little work is worth sharing out, and channels are too few for that."""
    monkeypatch.setattr(work_items, "LEAST_WORK", 256)
    desc = describe((3, 22, 11, 13), layout)
    for made in (forward(desc, desc, RELU), backward(desc, desc, desc, RELU)):
        assert PrimitiveDesc(made, ENGINE).scratchpad_desc.size > 4 * 22 * 2
        run(made)
    run(forward(desc, desc, AFFINE, "forward_inference"))


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
@pytest.mark.parametrize("least", [work_items.LEAST_WORK, 256])
def test_large_means(layout: str, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean many times the deviation costs digits of the elements alone, not of the variance."""
    monkeypatch.setattr(work_items, "LEAST_WORK", least)
    # Sizes of its own, since what was made for another limit is remembered.
    desc = describe((4, 24 if least == 256 else 23, 9, 11), layout)
    values = 1e5 + np.random.default_rng(1).standard_normal(desc.dims)
    src = memory_of(values, desc, ENGINE)
    results = execute_all(PrimitiveDesc(forward(desc, desc, "none"), ENGINE), {Arg.SRC: src})
    mean, variance = reference.statistics(logical(src))
    tolerance = reference.STATISTICS_TOLERANCE("f32", 4 * 9 * 11)
    check(results[Arg.MEAN], mean, tolerance)
    check(results[Arg.VARIANCE], variance, tolerance)


@every_pair(isa=ISAS, layout=["nchw", "nhwc", "nChw16c"], flags=[RELU, ADDED, f"{RELU}|{GIVEN}"])
def test_not_a_number_passes_the_relu(isa: str, layout: str, flags: str) -> None:
    """One in src makes a channel of them, or an element where statistics are given; the workspace
    passes what diff_dst has there."""
    desc = describe(DIMS, layout)
    values, gradient = (logical(random_memory(desc, ENGINE, seed)) for seed in (11, 12))
    values[1, 3, 2, 2] = gradient[2, 3, 4, 6] = gradient[0, 5] = np.nan
    src, diff = (memory_of(array, desc, ENGINE) for array in (values, gradient))
    with config.override("max_cpu_isa", isa):
        run(forward(desc, desc, flags, "forward_inference"), {Arg.SRC: src})
        results, _ = run(forward(desc, desc, flags), {Arg.SRC: src})
        lost = np.isnan(logical(results[Arg.DST]))
        assert lost.sum() == (1 if GIVEN in flags else 3 * 5 * 7)
        assert (logical(results[Arg.WORKSPACE])[lost] == 1).all()
        kept: Memories = {a: results[a] for a in (Arg.WORKSPACE, *STATISTICS) if a in results}
        run(backward(desc, desc, desc, flags), {Arg.SRC: src, Arg.DIFF_DST: diff, **kept})


@pytest.mark.parametrize("flags", [AFFINE, ADDED, f"{ADDED}|{GIVEN}"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nChw16c"])
def test_in_place(layout: str, flags: str) -> None:
    desc = describe(DIMS, layout)
    data = random_memory(desc, ENGINE, 5)
    run(forward(desc, desc, flags), {Arg.SRC: data}, {Arg.DST: data})
    run(backward(desc, desc, desc, flags), {Arg.DIFF_DST: data}, {Arg.DIFF_SRC: data})


def test_post_ops_of_a_training_pass() -> None:
    desc, attr = describe(DIMS, "nhwc"), PrimitiveAttr()
    attr.post_ops.append_eltwise("eltwise_linear", 3.0, 1.0)
    results, want = run(forward(desc, desc, RELU), attr=attr)
    check(results[Arg.DST], 3 * want[Arg.DST] + 1, reference.TRAINING_TOLERANCE("f32", 105))


@pytest.mark.parametrize(
    ("space", "argument", "mistrusted"),
    [(3, Arg.MEAN, True), (3, Arg.VARIANCE, True), (1, Arg.MEAN, True), (1, Arg.VARIANCE, False)],
)
def test_statistics_of_zero_are_mistrusted(space: int, argument: Arg, mistrusted: bool) -> None:
    """No mean is zero in the contents of a case, and no variance but that of a single element."""
    desc = describe((1, 19, space, 1), "nchw")
    made, zeros = forward(desc, desc, "none"), np.zeros(19)
    specification, f32 = made.operation.reference, DataType.f32
    rule = specification.rule(made, argument, specification.fill(made))
    assert compare("", zeros, zeros, f32, f32, rule).mistrusted == mistrusted
    values = specification.compute(made, specification.fill(made))[argument]
    assert (values == 0).all() == (not mistrusted)


@pytest.mark.parametrize("prop", ["forward_training", "forward_inference"])
def test_a_dst_that_is_read_does_not_pass_the_caches(prop: str) -> None:
    desc, attr = describe((16, 64, 4, 4), "nchw"), PrimitiveAttr()
    attr.post_ops.append_sum()
    made = forward(desc, desc, "none", prop)
    assert not PrimitiveDesc(made, ENGINE).scratchpad_desc.size  # all in one nest
    assert "nontemporal" in Primitive(PrimitiveDesc(made, ENGINE)).llvm_ir()
    assert "nontemporal" not in Primitive(PrimitiveDesc(made, ENGINE, attr)).llvm_ir()


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_as_pytorch(layout: str) -> None:
    desc = describe(DIMS, layout)
    results, _ = run(forward(desc, desc, AFFINE))
    inputs = PrimitiveDesc(forward(desc, desc, AFFINE), ENGINE).desc.tensors
    args = {t.argument: filled(n, t) for n, t in enumerate(t for t in inputs if not t.output)}
    src, scale, shift = (
        tensor(args[arg]).requires_grad_() for arg in (Arg.SRC, Arg.SCALE, Arg.SHIFT)
    )
    dst = torch.nn.functional.batch_norm(src, None, None, scale, shift, training=True, eps=EPSILON)
    check(results[Arg.DST], array(dst.detach()), reference.TRAINING_TOLERANCE("f32", 105))
    diff = random_memory(desc, ENGINE, 9)
    dst.backward(tensor(diff))  # type: ignore[no-untyped-call]
    given: Memories = {
        Arg.SRC: args[Arg.SRC],
        Arg.DIFF_DST: diff,
        Arg.SCALE: args[Arg.SCALE],
        Arg.MEAN: results[Arg.MEAN],
        Arg.VARIANCE: results[Arg.VARIANCE],
    }
    gradients, _ = run(backward(desc, desc, desc, AFFINE), given)
    for argument, peer, tolerance in (
        (Arg.DIFF_SRC, src, reference.DIFF_SRC_TOLERANCE),
        (Arg.DIFF_SCALE, scale, reference.DIFF_SCALE_TOLERANCE),
        (Arg.DIFF_SHIFT, shift, reference.DIFF_SCALE_TOLERANCE),
    ):
        assert peer.grad is not None
        check(gradients[argument], array(peer.grad), tolerance("f32", 105))


def test_layouts_left_open() -> None:
    src, open_desc = describe(DIMS, "nChw16c"), MemoryDesc(DIMS, "f32", "any")
    hint = PrimitiveDesc(forward(src, describe(DIMS, "nhwc"), RELU), ENGINE)
    pd = PrimitiveDesc(backward(open_desc, open_desc, src, RELU), ENGINE, hint=hint)
    assert (pd.diff_src_desc, pd.diff_dst_desc) == (src, describe(DIMS, "nhwc"))
    assert pd.workspace_desc == hint.workspace_desc == src.with_data_type("u8")
    alone = PrimitiveDesc(backward(open_desc, open_desc, src, RELU), ENGINE)
    assert (alone.diff_src_desc, alone.diff_dst_desc) == (src, src)


def test_no_elements() -> None:
    desc = describe((0, 3, 2, 2), "nchw")
    for made in (forward(desc, desc, RELU), backward(desc, desc, desc, RELU)):
        pd = PrimitiveDesc(made, ENGINE)
        args = {t.argument: Memory(t.desc, ENGINE) for t in pd.desc.tensors if not t.output}
        written = execute_all(pd, args)
        assert all((logical(memory) == 0).all() for memory in written.values())


def test_arguments() -> None:
    desc = describe(DIMS, "nchw")

    def arguments(made: BatchNormalizationDesc) -> set[int]:
        return {t.argument for t in made.tensors}

    inference = arguments(forward(desc, desc, RELU, "forward_inference"))
    assert inference == {Arg.SRC, Arg.DST, Arg.SCALE, Arg.SHIFT}
    assert arguments(forward(desc, desc, RELU)) == {*inference, *STATISTICS, Arg.WORKSPACE}
    data = {Arg.SRC, Arg.DIFF_DST, Arg.DIFF_SRC, Arg.SCALE, *STATISTICS}
    assert arguments(backward(desc, desc, desc, AFFINE, "backward_data")) == data
    every = {*data, Arg.WORKSPACE, Arg.DIFF_SRC_1, Arg.DIFF_SCALE, Arg.DIFF_SHIFT}
    assert arguments(backward(desc, desc, desc, ADDED)) == every


def test_what_is_refused() -> None:
    desc = describe(DIMS, "nchw").with_data_type("s8")
    for flags in ("none", GIVEN):
        with pytest.raises(
            Unimplemented, match=r"unsupported data type: s8; it takes f16, bf16, f32 or f64$"
        ):
            PrimitiveDesc(backward(desc, desc, desc, flags), ENGINE)


def test_bad_arguments() -> None:
    desc, other = describe(DIMS, "nchw"), MemoryDesc((3, 19, 5, 8), "f32")
    with pytest.raises(InvalidArguments, match="diff_src_desc"):
        backward(other, desc, desc, "none")
    with pytest.raises(InvalidArguments, match="diff_dst_desc"):
        backward(desc, other, desc, "none")
    with pytest.raises(InvalidArguments, match="prop_kind"):
        backward(desc, desc, desc, "none", "backward_weights")
