"""Tensors of several buffers: what describes them, and what memories do with them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import dnnl
from dnnl import Engine, InvalidArguments, Memory, MemoryDesc, reorder

ENGINE = Engine("cpu")
DENSE = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [5, 0, -1, 0]], np.float32)
CSR = MemoryDesc.csr((3, 4), "f32", 4)
COO = MemoryDesc.coo((3, 4), "f32", 4)
BY_ROWS = MemoryDesc.grouped((7, 4), "bf16", 0, 3)
BY_COLUMNS = MemoryDesc.grouped((4, 7), "f32", 1, 3)
PACKED = MemoryDesc.packed((64, 32), "s8", 17, 16, 4)
EVERY = (CSR, COO, BY_ROWS, BY_COLUMNS, MemoryDesc.packed((64, 32), "s8", 17), PACKED)


@pytest.mark.parametrize("desc", EVERY, ids=str)
def test_a_descriptor_is_a_value(desc: MemoryDesc) -> None:
    assert pickle.loads(pickle.dumps(desc)) == desc
    again = eval(repr(desc), {"MemoryDesc": MemoryDesc})
    assert again == desc
    assert hash(again) == hash(desc)
    assert desc != MemoryDesc(desc.dims, desc.data_type)
    assert desc.size == sum(part.size for part in desc.buffers)
    assert len({*EVERY, again}) == len(EVERY)


def test_verbose_tokens() -> None:
    assert [str(desc) for desc in EVERY] == [
        "f32::sparse:csr:4:f0",
        "f32::sparse:coo:4:f0",
        "bf16::sparse:grouped:0x3:f0",
        "f32::sparse:grouped:1x3:f0",
        "s8::sparse:packed:17:f0",
        "s8::sparse:packed:17x16x4:f0",
    ]


def test_buffers() -> None:
    assert [part.dims for part in CSR.buffers] == [(4,), (4,), (4,)]
    assert [part.dims for part in COO.buffers] == [(4,)] * 3
    assert [part.dims for part in PACKED.buffers] == [(17 + 512,), (2 * 1 + 1,), (64 * 32 // 8,)]
    values, ends = BY_COLUMNS.buffers
    assert values == MemoryDesc((4, 7), "f32", "ba")
    assert ends == MemoryDesc((3,), "s32")


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (lambda: MemoryDesc.csr((3, 4), "f32", -1), "nnz"),
        (lambda: MemoryDesc.csr((3, 4), "f32", 2**31), "nnz"),
        (lambda: MemoryDesc.csr((2, 3, 4), "f32", 1), "dims"),
        (lambda: MemoryDesc.coo((3, dnnl.RUNTIME_DIM), "f32", 1), "dims"),
        (lambda: MemoryDesc.coo((3, 2**31), "f32", 1), "dims"),
        (lambda: MemoryDesc.csr((3, 4), "f32", 1, "s64"), "index_type"),
        (lambda: MemoryDesc.csr((3, 4), "f32", 1, "s32", "s64"), "pointer_type"),
        (lambda: MemoryDesc.csr((3, 4), "s4", 1), "data_type"),
        (lambda: MemoryDesc.grouped((3, 4), "f32", 2, 1), "variable_dim_idx"),
        (lambda: MemoryDesc.grouped((3, 4), "f32", 0, 0), "group_count"),
        (lambda: CSR.reshape((4, 3)), "dims"),
        (lambda: CSR.permute_axes((1, 0)), "desc"),
        (lambda: CSR.submemory((1, 1), (0, 0)), "desc"),
        (lambda: Memory(MemoryDesc.packed((64, 32), "s8", 17), ENGINE), "desc"),
        (lambda: Memory(CSR, ENGINE, np.zeros(4, "f4")), "buffer"),
        (lambda: Memory(CSR, ENGINE, [np.zeros(4, "f4")] * 2), "buffer"),
        (lambda: Memory(CSR, ENGINE, [np.zeros(4, "f4")] * 3), "buffer"),
        (lambda: Memory(CSR, ENGINE, [Memory(COO, ENGINE)] * 3), r"buffer\[0\]"),
        (lambda: Memory(CSR, ENGINE).data, "memory.data"),
        (lambda: Memory(CSR, ENGINE).read(), "memory.read"),
        (lambda: Memory.from_sparse(DENSE), "matrix"),
        (lambda: Memory.from_numpy(np.zeros((2, 3, 4), "f4"), "csr"), "dims"),
    ],
)
def test_refusals(made: Callable[[], object], wrong: str) -> None:
    with pytest.raises(InvalidArguments, match=wrong):
        made()


@pytest.mark.parametrize("encoding", ["csr", "coo"])
def test_sparse_memories_are_matrices(encoding: str) -> None:
    memory = Memory.from_numpy(DENSE, encoding)
    assert memory.desc == getattr(MemoryDesc, encoding)((3, 4), "f32", 4)
    assert memory.numpy().tolist() == DENSE.tolist()
    assert not memory.numpy().flags.writeable
    assert np.asarray(memory, np.float64).tolist() == DENSE.tolist()
    assert memory.reorder_to("ba").numpy().tolist() == DENSE.tolist()
    again = pickle.loads(pickle.dumps(memory))
    assert again.desc == memory.desc
    assert again.numpy().tolist() == DENSE.tolist()
    with pytest.raises(BufferError, match="several buffers"):
        np.from_dlpack(memory)
    with pytest.raises(ValueError, match="without a copy"):
        np.array(memory, copy=False)
    memory.parts[1].numpy()[0] = 9
    if encoding == "csr":
        with pytest.raises(InvalidArguments, match="dimension 1"):
            memory.numpy()


def test_buffers_are_wrapped_and_not_copied() -> None:
    values, columns, pointers = (np.ones(4, "f4"), np.arange(4, dtype="i4"), np.zeros(4, "i4"))
    memory = Memory(CSR, ENGINE, [values, columns, pointers])
    values[0], pointers[1:] = 7, 1
    assert memory.numpy().tolist() == [[7, 0, 0, 0], [0] * 4, [0] * 4]
    pointers[2] = 5
    with pytest.raises(InvalidArguments, match="never fall"):
        memory.numpy()


def test_elements_that_are_stored_twice_are_added() -> None:
    index = np.zeros(4, "i4")
    memory = Memory(COO, ENGINE, [np.ones(4, "f4"), index, index])
    assert memory.numpy()[0, 0] == 4


@pytest.mark.parametrize("desc", [BY_ROWS, BY_COLUMNS], ids=str)
def test_grouped_memories_are_their_values(desc: MemoryDesc) -> None:
    memory = Memory(desc, ENGINE)
    memory.parts[1].numpy()[:] = (2, 2, 7)
    view = memory.numpy()
    assert view.shape == desc.dims
    view[:] = 3
    assert (memory.parts[0].numpy() == 3).all()
    assert view.flags.f_contiguous == (desc is BY_COLUMNS)


def test_matrices_as_scipy_keeps_them() -> None:
    data = np.array([1.0, 2.0, 3.0])
    csr = SimpleNamespace(
        format="csr", shape=(2, 3), data=data, indices=np.array([2, 0, 1]), indptr=[0, 1, 3]
    )
    assert Memory.from_sparse(csr).numpy().tolist() == [[0, 0, 1], [2, 3, 0]]
    coo = SimpleNamespace(format="coo", shape=(2, 3), data=data, row=[1, 0, 1], col=[1, 2, 0])
    memory = Memory.from_sparse(coo)
    assert memory.numpy().tolist() == [[0, 0, 2], [3, 1, 0]]
    assert memory.parts[1].numpy().tolist() == [0, 1, 1]


@pytest.mark.parametrize("desc", [CSR, BY_ROWS], ids=str)
def test_operations_that_take_no_encoding_say_so(desc: MemoryDesc) -> None:
    relu = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", desc, desc)
    with pytest.raises(dnnl.Unimplemented, match=r"SRC is .*sparse"):
        dnnl.PrimitiveDesc(relu, ENGINE)
    plain = MemoryDesc((7, 4), "f32")
    attr = dnnl.PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", MemoryDesc.csr((7, 4), "f32", 3))
    add = dnnl.EltwiseDesc.forward("forward_inference", "eltwise_relu", plain, plain)
    with pytest.raises(dnnl.Unimplemented, match="SRC_1 is"):
        dnnl.PrimitiveDesc(add, ENGINE, attr)


def test_one_buffer_of_transformed_weights_has_bytes() -> None:
    """They can be saved and loaded; elements are written by reorders alone."""
    desc = MemoryDesc.winograd((8, 4, 3, 3), "f32", 4, 8)
    taps = np.random.default_rng(3).standard_normal((8, 4, 3, 3), np.float32)
    memory, again = (Memory(desc, Engine("cpu")) for _ in range(2))
    reorder(Memory.from_numpy(taps), memory)
    assert memory.data.shape == (desc.size,)
    again.write(memory.read())
    assert np.array_equal(again.numpy(), memory.numpy())
    with pytest.raises(InvalidArguments, match="transformed or indexed; reorder from a plain one"):
        memory.fill(taps)
