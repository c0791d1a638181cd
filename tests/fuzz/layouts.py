"""Layouts that no tag spells, for cases of ``dnnl bench``: gaps, regions, padding beyond blocks.

A word ``@FIELD=STRIDES/BLOCKS/PADDED/OFFSET;...`` names those fields of a description whose tensors
lie otherwise than its case says; of several tensors in a field, the first is ``FIELD.0``::

    @src_desc=40x4x1/8b/2x32x4/5
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dnnl.errors import Error
from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.creation import Created, describe
from dnnl.tools.bench.drivers import description
from dnnl.types.memory_desc import MemoryDesc
from tests.layout_strategies import descs

MARK = "@"
_LETTERS = "abcdefghijkl"


@st.composite
def drawn(draw: st.DrawFn, case: Case) -> str:
    """Layouts for some tensors of a case; none where it has to lie as it says."""
    kind = description(case.driver)
    if kind is None or case.in_place:
        return ""
    try:
        asked = describe(case, kind)
    except (BadValue, Error):
        return ""
    found = []
    for name, desc in _fields(asked).items():
        known = desc.ndims and not (desc.has_zero_dim or desc.has_runtime_values)
        if known and desc.encoding is None and draw(st.integers(0, 3)) > 0:
            found.append(f"{name}={_spelled(draw(descs(desc.dims, str(desc.data_type))))}")
    return MARK + ";".join(found) if found else ""


def applied(created: Created, text: str) -> Created:
    """What was created, with tensors laid out as ``text`` says; raises as the library does."""
    if not text:
        return created
    known = _fields(created.desc)
    changes: dict[str, Any] = {}
    for entry in text.removeprefix(MARK).split(";"):
        name, _, layout = entry.partition("=")
        own = _read(known[name], layout)
        field, _, number = name.partition(".")
        if number:
            every = list(changes.get(field, getattr(created.desc, field)))
            every[int(number)] = own
            changes[field] = tuple(every)
        else:
            changes[field] = own
    desc = replace(created.desc, **changes)
    engine, hint = created.pd.engine, None
    if created.forward is not None:
        hint = PrimitiveDesc(created.forward, engine)
    return created._replace(desc=desc, pd=PrimitiveDesc(desc, engine, created.attr, hint))


def _fields(desc: Desc) -> dict[str, MemoryDesc]:
    """The descriptors that a description holds, by the names of here."""
    found: dict[str, MemoryDesc] = {}
    for role in desc.operation.roles:
        if role.field and role.derived is None and desc.has(role):
            value = getattr(desc, role.field)
            pairs = enumerate(value) if role.many else [("", value)]
            named = {f"{role.field}.{n}" if role.many else role.field: own for n, own in pairs}
            found |= {name: own for name, own in named.items() if not own.is_zero}
    return found


def _spelled(desc: MemoryDesc) -> str:
    blocks = "".join(f"{size}{_LETTERS[dim]}" for dim, size in desc.inner_blocks)
    strides, padded = ("x".join(map(str, sizes)) for sizes in (desc.strides, desc.padded_dims))
    return f"{strides}/{blocks}/{padded}/{desc.offset0}"


def _read(desc: MemoryDesc, text: str) -> MemoryDesc:
    strides, blocks, padded, offset0 = text.split("/")
    inner, size = [], ""
    for letter in blocks:
        if letter.isdigit():
            size += letter
        else:
            inner.append((_LETTERS.index(letter), int(size)))
            size = ""
    # As f32, since elements of 4 bits are refused in strides, which regions have them in as well.
    made = MemoryDesc(
        desc.dims,
        "f32",
        [int(step) for step in strides.split("x")],
        inner_blocks=tuple(inner),
        padded_dims=[int(extent) for extent in padded.split("x")],
        offset0=int(offset0),
    )
    return made.with_data_type(desc.data_type)
