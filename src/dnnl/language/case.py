"""One case: the values of its driver's options, and its problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dnnl.language.descriptor import Descriptor
from dnnl.language.errors import BadValue
from dnnl.language.options import Driver, Problem
from dnnl.language.problem import Shapes
from dnnl.language.tags import expand
from dnnl.language.values import Lacked
from dnnl.types.dtype import DataType
from dnnl.types.kinds import NormFlags, PropKind
from dnnl.types.memory_desc import MemoryDesc

INVALID = "Invalid case"
NOT_SUPPORTED = "Case not supported"
_PROPAGATIONS = {
    "FWD_D": PropKind.forward_training, "FWD_B": PropKind.forward_training,
    "FWD_I": PropKind.forward_inference, "BWD_D": PropKind.backward_data,
    "BWD_W": PropKind.backward_weights, "BWD_WB": PropKind.backward_weights,
    "BWD_DW": PropKind.backward,
}  # fmt: skip


@dataclass(frozen=True)
class CaseValues:
    """What a case says, by the names of the options."""

    driver: Driver
    values: dict[str, Any]
    problem: Problem

    def __getitem__(self, option: str) -> Any:
        return self.values[option]

    @property
    def lacking(self) -> list[str]:
        """What the values ask for that this library does not have."""
        return [value.reason for value in self.values.values() if isinstance(value, Lacked)]

    @property
    def shapes(self) -> Shapes:
        """The problem of a driver whose problems are dims."""
        assert isinstance(self.problem, Shapes)
        return self.problem

    @property
    def sizes(self) -> Descriptor:
        """The problem of a driver whose problems are keys with numbers."""
        assert isinstance(self.problem, Descriptor)
        return self.problem

    @property
    def prop_kind(self) -> PropKind:
        """The propagation that is asked for."""
        option = self.driver.propagation
        assert option is not None
        return _PROPAGATIONS[str(self[option.name])]

    @property
    def in_place(self) -> bool:
        """Whether one buffer is asked for where an output may replace an input."""
        return bool(self.values.get("inplace", False))

    @property
    def cross_engine(self) -> str:
        """``cpu2gpu`` or ``gpu2cpu`` where one tensor is on the cpu and the other on the engine of
        the run; empty where both are there."""
        value = str(self.values.get("cross-engine", "none"))
        return "" if value == "none" else value

    def part(self, option: str, number: int) -> Any:
        """Item ``number`` of a list with colons; its only one serves all."""
        items = self[option].items
        return items[number] if number < len(items) else items[-1]

    def tag(self, number: int) -> Any:
        """Item ``number`` of the layouts, which is open where there are fewer."""
        items = self["tag"].items
        return items[number] if number < len(items) else "any"

    def spread(self, option: str, count: int) -> Sequence[Any]:
        """One item for each of ``count`` sources, a single one for all; raises BadValue."""
        items: Sequence[Any] = self[option].items
        if len(items) not in (1, count):
            raise BadValue(f"--{option} has {len(items)} parts, there are {count} sources")
        return items if len(items) == count else [*items] * count

    def strides(self, number: int, option: str) -> str:
        """Part ``number`` of the strides; raises BadValue where the tag ``option`` is given too."""
        text = str(self.values.get("strides", ""))
        part = text.split(":")[number] if text else ""
        plain = self.driver.find(option)
        assert plain is not None
        if part and str(self[option]) != plain.default:
            raise BadValue(f"--strides={text} with --{option}={self[option]}: one says it all")
        return part


def tensor(dims: Sequence[int], data_type: DataType, tag: object, strides: str = "") -> MemoryDesc:
    """The descriptor of one tensor of a case; strides as ``8x4x1`` replace the tag."""
    if strides:
        numbers = [int(part) for part in strides.split("x")]
        return MemoryDesc(dims, data_type, numbers)
    return MemoryDesc(dims, data_type, expand(str(tag), len(dims)))


def bias_type(case: CaseValues) -> DataType | None:
    """The type of a bias, f32 (f64 with f64) where it is left open; None where there is none."""
    direction, kind = str(case["dir"]), case["bia-dt"]
    if kind is DataType.undef and direction in ("FWD_B", "BWD_WB"):
        kind = DataType.f64 if case.part("dt", 2) is DataType.f64 else DataType.f32
    return None if kind is DataType.undef or direction == "FWD_D" else kind


def flags_of(letters: str) -> NormFlags:
    """The flags of a normalization by their letters."""
    found = NormFlags.none
    for flag in NormFlags:
        if flag.letters and flag.letters in letters:
            found |= flag
    return found
