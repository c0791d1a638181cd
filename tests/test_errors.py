"""Errors say what was wrong, are what users may catch, and survive a trip between processes."""

from __future__ import annotations

import pickle

import pytest

import dnnl


def test_invalid_arguments_names_argument_value_rule_and_hint() -> None:
    error = dnnl.InvalidArguments("axis", 4, "must be below 3", "use 2")
    assert str(error) == "axis = 4: must be below 3; use 2"
    assert isinstance(error, dnnl.Error)
    assert isinstance(error, ValueError)


def test_unimplemented_lists_its_reasons() -> None:
    error = dnnl.Unimplemented("nothing does it", ["a: unsupported layout", "b: unsupported type"])
    assert str(error).splitlines()[1:] == ["  - a: unsupported layout", "  - b: unsupported type"]
    assert isinstance(error, NotImplementedError)


@pytest.mark.parametrize(
    "error",
    [
        dnnl.InvalidArguments("axis", 4, "must be below 3", "use 2"),
        dnnl.Unimplemented("nothing does it", ("a", "b")),
        dnnl.OutOfMemory("4 EiB"),
    ],
)
def test_errors_can_be_pickled(error: dnnl.Error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_unknown_isa_limit_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    md = dnnl.MemoryDesc((4,), "f32")
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", md, md)
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "avx1024")
    with pytest.raises(dnnl.InvalidArguments, match=r"DNNL_MAX_CPU_ISA = 'avx1024'.*avx2"):
        dnnl.PrimitiveDesc(desc, dnnl.Engine("cpu"))


def test_stream_and_memory_of_another_engine_are_refused() -> None:
    cpu, null = dnnl.Engine("cpu"), dnnl.Engine("null")
    md = dnnl.MemoryDesc((4,), "f32")
    desc = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", md, md)
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(desc, cpu))
    src, dst = dnnl.Memory(md, cpu), dnnl.Memory(md, cpu)
    with pytest.raises(dnnl.InvalidArguments, match=r"must be a stream of Engine\('cpu', 0\)"):
        primitive.execute(dnnl.Stream(null), {dnnl.Arg.SRC: src, dnnl.Arg.DST: dst})
    far = dnnl.Memory(md, null)
    with pytest.raises(dnnl.InvalidArguments, match=r"args\[SRC\].*must be on Engine\('cpu', 0\)"):
        primitive.execute(dnnl.Stream(cpu), {dnnl.Arg.SRC: far, dnnl.Arg.DST: dst})
