"""Equal requests are planned once; whatever decides a plan makes requests unequal."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

import dnnl
from dnnl import MemoryDesc, PrimitiveAttr, PrimitiveDesc, config
from dnnl.codegen.ir.kernel import Reason, Refusal
from dnnl.codegen.isa import caches
from dnnl.primitives.choice import CHOICES
from dnnl.primitives.implementation import Implementation
from dnnl.types.scalar import Scalar
from tests.forking import DONE, forked

ENGINE = dnnl.Engine("cpu")

Change = Callable[[PrimitiveAttr], object]


CHANGES: dict[str, Change] = {
    "a post-op": lambda attr: attr.post_ops.append_eltwise("eltwise_relu"),
    "another post-op": lambda attr: attr.post_ops.append_eltwise("eltwise_relu", 0.5),
    "scales": lambda attr: attr.set_scales("SRC"),
    "scales of columns": lambda attr: attr.set_scales("WEIGHTS", 2),
    "a scratchpad": lambda attr: setattr(attr, "scratchpad_mode", "user"),
    "bf16": lambda attr: setattr(attr, "fpmath_mode", "bf16"),
    "dropout": lambda attr: attr.set_dropout(),
    "a mask": lambda attr: attr.set_dropout(MemoryDesc((5, 20), "u8", "ba")),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the implementations of eltwise, matmul and softmax that were asked to plan."""
    names: list[str] = []

    def counted(impl: Implementation) -> Implementation:
        def configure(*args: object) -> object:
            names.append(impl.name)
            return impl.configure(*args)  # type: ignore[arg-type]

        return replace(impl, configure=configure)  # type: ignore[arg-type]

    for kind in (dnnl.EltwiseDesc, dnnl.MatmulDesc, dnnl.SoftmaxDesc):
        record = kind.operation
        impls = tuple(map(counted, record.implementations))
        monkeypatch.setattr(kind, "operation", replace(record, implementations=impls))
    CHOICES.clear()
    yield names
    CHOICES.clear()


def matmul(m: int = 5, weights: str = "any", bias: bool = False) -> dnnl.MatmulDesc:
    return dnnl.MatmulDesc(
        MemoryDesc((m, 24), "f32", "ab"),
        MemoryDesc((24, 20), "f32", weights),
        MemoryDesc((m, 20), "f32", "any"),
        MemoryDesc((1, 20), "f32") if bias else None,
    )


def eltwise(
    pass_: str = "forward_training", layout: str | tuple[int, ...] = "abc"
) -> dnnl.EltwiseDesc:
    md = MemoryDesc((3, 1, 8), "f32", layout)
    if pass_ != "backward":
        return dnnl.EltwiseDesc.forward(pass_, "eltwise_gelu_erf", md, md)
    open_md = MemoryDesc(md.dims, "f32", "any")
    return dnnl.EltwiseDesc.backward("eltwise_gelu_erf", open_md, open_md, md)


def attributes(*changes: Change) -> PrimitiveAttr:
    attr = PrimitiveAttr()
    for change in changes:
        change(attr)
    return attr


def test_equal_requests_are_planned_once(asked: list[str]) -> None:
    relu = CHANGES["a post-op"]
    first = PrimitiveDesc(matmul(), ENGINE, attributes(relu))
    count = len(asked)
    second = PrimitiveDesc(matmul(), ENGINE, attributes(relu))
    assert count == len(asked) > 0
    assert second.plan is first.plan
    assert second.key == first.key
    assert (str(second), second.attr) == (str(first), first.attr)


@pytest.mark.parametrize("name", CHANGES)
def test_attributes_decide(asked: list[str], name: str) -> None:
    plain = PrimitiveDesc(matmul(), ENGINE)
    asked.clear()
    changed = PrimitiveDesc(matmul(), ENGINE, attributes(CHANGES[name]))
    assert asked
    assert changed.attr != plain.attr
    assert str(changed) != str(plain)


def test_sizes_and_layouts_decide(asked: list[str]) -> None:
    descs = [matmul(), matmul(6), matmul(bias=True), matmul(weights="ab"), matmul(weights="ba")]
    for desc in descs:
        asked.clear()
        pd = PrimitiveDesc(desc, ENGINE)
        assert asked
        assert pd.dst_desc.dims == desc.dst_desc.dims
    assert len({str(PrimitiveDesc(desc, ENGINE)) for desc in descs}) == len(descs)


def test_the_instruction_set_decides(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    best = PrimitiveDesc(matmul(), ENGINE)
    with config.override("max_cpu_isa", "generic"):
        lowest = PrimitiveDesc(matmul(), ENGINE)
    assert lowest.impl_info.endswith(":generic")
    assert lowest.plan.recipe.isa.name == "generic"
    assert PrimitiveDesc(matmul(), ENGINE).impl_info == best.impl_info
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "generic")
    assert PrimitiveDesc(matmul(), ENGINE).plan is lowest.plan
    monkeypatch.delenv("DNNL_MAX_CPU_ISA")
    monkeypatch.setattr(caches, "of", lambda _cpu, sized: replace(sized, l2=2**14))
    asked.clear()
    assert PrimitiveDesc(matmul(), ENGINE).plan.recipe.isa.caches.l2 == 2**14
    assert asked


def test_the_engine_decides(asked: list[str]) -> None:
    PrimitiveDesc(matmul(), ENGINE)
    asked.clear()
    PrimitiveDesc(matmul(), dnnl.Engine("null", features=ENGINE.features))
    assert asked


def test_the_hint_decides() -> None:
    desc = eltwise("backward", "acb")
    for layout in ("abc", "cba", "abc"):
        hint = PrimitiveDesc(eltwise("forward_training", layout), ENGINE)
        pd = PrimitiveDesc(desc, ENGINE, hint=hint)
        assert pd.diff_src_desc.matches_tag(layout)


@pytest.mark.parametrize("order", [1, -1])
def test_spellings_of_one_layout_stay_apart(order: int) -> None:
    """Descriptors are equal that differ in the stride of a dimension of size 1."""
    layouts: tuple[str | tuple[int, ...], ...] = ("abc", "acb", (8, 77, 1))[::order]
    for layout in layouts:
        desc = eltwise(layout=layout)
        pd = PrimitiveDesc(desc, ENGINE)
        assert pd.src_desc.strides == desc.src_desc.strides
        assert str(pd.src_desc.tag) == str(desc.src_desc.tag)


def test_names_of_functions_stay_apart() -> None:
    def twice(x: Scalar) -> Scalar:
        return 2 * x

    def double(x: Scalar) -> Scalar:
        return 2 * x

    for fn in (twice, double):
        attr = PrimitiveAttr()
        attr.post_ops.append_function(fn)
        pd = PrimitiveDesc(matmul(), ENGINE, attr)
        assert f"function:{fn.__name__}" in str(pd)


def test_what_is_shared_cannot_be_changed() -> None:
    attr = PrimitiveAttr()
    first = PrimitiveDesc(matmul(), ENGINE, attr)
    attr.post_ops.append_eltwise("eltwise_relu")
    first.attr.set_scales("SRC")
    first.next_impl()
    second = PrimitiveDesc(matmul(), ENGINE)
    assert second.attr == PrimitiveAttr()
    assert [candidate.refusal for candidate in second.candidates][-1] is None
    assert PrimitiveDesc(matmul(), ENGINE, attr).attr == attr


def test_refusals_are_told_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    desc = dnnl.ConvolutionDesc.forward(
        "forward_inference",
        "convolution_direct",
        MemoryDesc((1, 8, 6, 6), "f32", "any"),
        MemoryDesc((8, 8, 3, 3), "f32", "any"),
        MemoryDesc((1, 8, 4, 4), "f32", "any"),
        1,
        0,
    )
    PrimitiveDesc(desc, ENGINE)
    with config.override("verbose", "dispatch"):
        for _ in range(2):
            PrimitiveDesc(desc, ENGINE)
    lines = [line for line in capsys.readouterr().out.splitlines() if "create:dispatch" in line]
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert first == second
    assert "depthwise,unsupported shape" in first[0]


def test_what_cannot_be_done_is_not_remembered(asked: list[str]) -> None:
    attr = attributes(lambda attr: attr.set_scales("BIAS"))
    for _ in range(2):
        asked.clear()
        with pytest.raises(dnnl.Unimplemented):
            PrimitiveDesc(matmul(bias=True), ENGINE, attr)
        assert asked


def test_nothing_is_remembered_without_capacity(asked: list[str]) -> None:
    with config.override("primitive_cache_capacity", 0):
        PrimitiveDesc(matmul(), ENGINE)
        asked.clear()
        PrimitiveDesc(matmul(), ENGINE)
    assert asked


def test_memory_stays_flat() -> None:
    def plan(count: int) -> int:
        for m in range(1, 1 + count):
            PrimitiveDesc(matmul(m), ENGINE)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    with config.override("primitive_cache_capacity", 8):
        CHOICES.clear()
        PrimitiveDesc(matmul(), ENGINE)
        tracemalloc.start()
        try:
            few = plan(16)
            many = plan(400)
        finally:
            tracemalloc.stop()
    assert many - few < 2**20


def test_threads_share_one_choice(asked: list[str]) -> None:
    found: list[PrimitiveDesc] = []
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(PrimitiveDesc(matmul(7), ENGINE))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(pd.plan) for pd in found}) == 1
    assert asked.count(asked[0]) == 1


def test_a_child_of_a_fork_plans_what_a_thread_was_planning() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*_: object) -> Refusal:
        begun.set()
        go_on.wait(10)
        return Refusal(Reason.SHAPE)

    record = dnnl.MatmulDesc.operation
    slowed = replace(
        record, implementations=(Implementation("slow", slow), *record.implementations)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dnnl.MatmulDesc, "operation", slowed)
        thread = threading.Thread(target=lambda: PrimitiveDesc(matmul(9), ENGINE))
        thread.start()
        assert begun.wait(10)
        patch.undo()
        code = forked(lambda: PrimitiveDesc(matmul(9), ENGINE), limit=10)
        go_on.set()
        thread.join(10)
    CHOICES.clear()
    assert code == DONE
