"""Whatever is passed where, what is raised is an error of the library."""

from __future__ import annotations

from typing import Any

import pytest

import dnnl
from dnnl import config
from tests.fuzz.call_table import PLAIN, calls
from tests.fuzz.calls import ENUMS, call_text, tried
from tests.fuzz.kind import PASSED, State

CALLS = calls()
OTHERS = ("md.compensation_desc", "mem.compensation", "attr.post_ops.__getitem__")
"""Those that give what the objects of the table do not have."""
PROTOCOLS = ("attr.post_ops.__getitem__", "mem.__dlpack__", "mem.__array__")
"""What Python and NumPy call, who expect a TypeError."""


def _attempt(text: str, *, may_be_type_error: bool = False) -> None:
    outcome = tried(text, lambda *_: None)
    assert outcome.state is not State.FAILED, f"{text}\n{outcome.detail}"
    assert outcome.reason != "TypeError" or may_be_type_error, f"{text} raises a TypeError"


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_of_the_wrong_kind(name: str) -> None:
    right = CALLS[name]
    if name not in OTHERS:
        assert tried(call_text(name, right), lambda *_: None) == PASSED
    for key in right:
        for wrong in PLAIN:
            any_number = key == "*"  # of arguments, which Python itself refuses
            may_be = any_number or name in PROTOCOLS
            _attempt(call_text(name, {**right, key: wrong}), may_be_type_error=may_be)


@pytest.mark.parametrize("knob", config.KNOBS, ids=lambda knob: knob.name)
def test_a_setting_of_the_wrong_kind(knob: Any) -> None:
    for wrong in PLAIN:
        _attempt(f"config.set({knob.name!r}, {wrong})")


def test_every_public_name_is_tried() -> None:
    names = {name.split(".")[0] for name in CALLS}
    assert {kind.__name__ for kind in ENUMS} <= names
    values = {"RUNTIME_DIM", "Event", "get_num_threads"}  # which take no arguments
    errors = {"Error", "InvalidArguments", "OutOfMemory", "Unimplemented"}
    of_torch = {"from_torch", "explain_graph"}  # which tests/torch tries
    assert set(dnnl.__all__) <= names | values | errors | of_torch
