"""Tensors in files beside a model: read where they are the model's own, refused with the reason."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from dnnl.framework.model import load
from dnnl.graph.graph import ModelError
from tests.framework.models import make_model, node

NO_DIGITS = [" 0", "0 ", "0\n", "+0", "0_0", "", "\N{ARABIC-INDIC DIGIT ZERO}", "9" * 5000]
VALUES = np.random.default_rng(1).standard_normal(100).astype(np.float32)


def saved(folder: Path, **entries: Any) -> Path:
    """A model beside ``w.bin``, whose tensor has these entries."""
    proto = make_model([node("Add", ["x", "w"], "y")], {"x": [100]}, ["y"], {"w": VALUES})
    moved(proto.graph.initializer[0], {"location": "w.bin", **entries})
    (folder / "w.bin").write_bytes(VALUES.tobytes())
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def moved(tensor: Any, entries: Mapping[str, Any]) -> None:
    """Make the contents of a tensor external."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))


def test_whole_file(tmp_path: Path) -> None:
    np.testing.assert_array_equal(load(saved(tmp_path)).graph.constants["w"], VALUES)


def test_part_of_a_file_in_a_folder_below(tmp_path: Path) -> None:
    path = saved(tmp_path, location="a/../sub/./w", offset=3, length=400)
    (tmp_path / "a").mkdir()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w").write_bytes(b"123" + VALUES.tobytes() + b"4")
    np.testing.assert_array_equal(load(path).graph.constants["w"], VALUES)


def test_a_length_of_0_is_all_that_the_tensor_needs(tmp_path: Path) -> None:
    path = saved(tmp_path, length=0)
    np.testing.assert_array_equal(load(path).graph.constants["w"], VALUES)
    proto = make_model([node("Add", ["x", "w"], "y")], {"x": [0]}, ["y"], {"w": VALUES[:0]})
    moved(proto.graph.initializer[0], {"location": "w.bin", "length": 0})
    path.write_bytes(proto.SerializeToString())
    assert load(path).graph.constants["w"].shape == (0,)


def test_elements_of_four_bits(tmp_path: Path) -> None:
    path = saved(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].data_type = TensorProto.INT4
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"unsupported type: tensor\(int4\)"):
        load(path)  # an Add of float and int4: the file was read, ONNX does not have the sum
    (tmp_path / "w.bin").write_bytes(bytes(49))
    with pytest.raises(ModelError, match="needed are 50 bytes from byte 0 on, found 49"):
        load(path)


@pytest.mark.parametrize("dims", [(-4,), (2, -1)])
def test_negative_dims(dims: tuple[int, ...], tmp_path: Path) -> None:
    path = saved(tmp_path)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.initializer[0].dims[:] = dims
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="has negative dims"):
        load(path)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"offset": -1}, "has the offset '-1', which must be a number of digits alone"),
        ({"offset": "ten"}, "has the offset 'ten'"),
        ({"length": -4}, "has the length '-4'"),
        ({"length": "0x10"}, "has the length '0x10'"),
        *(({"offset": text}, "has the offset .*, which must be") for text in NO_DIGITS),
        ({"length": 396}, r"is said to hold 396 bytes of it, but dims \(100,\) are 400"),
        ({"offset": 4}, "is too short: needed are 400 bytes from byte 4 on, found 396"),
        ({"offset": 2**70}, "is too short: .*found 0"),
        ({"location": "none.bin"}, "is missing in the model's folder"),
        ({"location": "w.bin/x"}, "cannot be read: Not a directory"),
        ({"location": ""}, "has no name"),
        ({"location": "w\0.bin"}, "has a name that is no text"),
        ({"location": "w" * 300}, "cannot be read: File name too long"),
        ({"location": "../w.bin"}, "is outside of the model's folder"),
        ({"location": "a/../../w.bin"}, "is outside of the model's folder"),
        ({"location": "/etc/hostname"}, "is absolute"),
        ({"location": "."}, "is no regular file"),
        ({"location": "pipe"}, "is no regular file"),
        ({"location": "link"}, "is a link at 'link'"),
        ({"location": "folder/w.bin"}, "is a link at 'folder'"),
        ({"location": "folder/../w.bin"}, "is a link at 'folder'"),
        ({"location": "w.bin/../w.bin"}, "cannot be read: Not a directory"),
        ({"location": "none/../w.bin"}, "is missing in the model's folder"),
        ({"location": "hard"}, "is a hard link"),
    ],
)
def test_refused_with_the_reason(entries: Mapping[str, Any], reason: str, tmp_path: Path) -> None:
    path = saved(tmp_path, **entries)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("w.bin")
    (tmp_path / "folder").symlink_to(".")
    (tmp_path / "other").write_bytes(VALUES.tobytes())
    os.link(tmp_path / "other", tmp_path / "hard")
    with pytest.raises(ModelError, match=f"tensor 'w' is in the external file .*, which {reason}"):
        load(path)


def test_name_that_is_no_text(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"w.bin", b"\xff\xfe\xfd\xfc\xfb"))
    with pytest.raises(ModelError, match="has a name that is no text"):
        load(path)


def test_attributes_are_read_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = onnx.numpy_helper.from_array(VALUES, "value")
    moved(tensor, {"location": "w.bin"})
    nodes = [node("Constant", [], "w", value=tensor), node("Add", ["x", "w"], "y")]
    path = tmp_path / "model.onnx"
    path.write_bytes(make_model(nodes, {"x": [100]}, ["y"]).SerializeToString())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "w.bin").write_bytes(bytes(400))
    monkeypatch.chdir(elsewhere)
    with pytest.raises(ModelError, match=f"is missing in the model's folder '{tmp_path}'"):
        load(path)
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    np.testing.assert_array_equal(load(path)(np.zeros(100, np.float32)), VALUES)
