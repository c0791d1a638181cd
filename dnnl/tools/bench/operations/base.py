"""What a driver needs to run its cases: a description, contents, a reference, a rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from dnnl.errors import Unimplemented
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.reference.arrays import Array
from dnnl.tools.bench import attributes as parsed
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.compare import Rule
from dnnl.tools.bench.descriptor import Descriptor
from dnnl.tools.bench.errors import BadValue
from dnnl.tools.bench.options import DRIVERS
from dnnl.tools.bench.problem import Shapes
from dnnl.tools.bench.tags import expand
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.kinds import PropKind
from dnnl.types.memory_desc import MemoryDesc

Values = Mapping[int, Array]

INVALID = "Invalid case"
NOT_SUPPORTED = "Case not supported"


class Operation(ABC):
    """One driver's knowledge of its primitive. ``in_place`` is the input that dst may replace."""

    in_place: int = Arg.SRC

    def skip(self, case: Case) -> str | None:
        """Why a case makes no sense or cannot be run here, None if it can."""
        return None

    @abstractmethod
    def describe(self, case: Case) -> Desc:
        """The operation; raises Unimplemented where the library has none."""

    def at_execution(self, case: Case, pd: PrimitiveDesc) -> PrimitiveDesc:
        """The description with all that an execution knows."""
        return pd

    @abstractmethod
    def fill(self, case: Case, desc: Desc) -> dict[int, Array]:
        """The logical values of every input by argument."""

    @abstractmethod
    def compute(self, case: Case, desc: Desc, values: Values) -> Array:
        """The destination by the reference, before post-ops; inputs come dequantized."""

    @abstractmethod
    def rule(self, case: Case, desc: Desc, values: Values) -> Rule:
        """What is accepted."""


def tensor_desc(
    dims: Sequence[int], data_type: DataType, tag: str, strides: str = ""
) -> MemoryDesc:
    """The descriptor of one tensor of a case; strides as ``8x4x1`` replace the tag."""
    if strides:
        numbers = [int(part) for part in strides.split("x")]
        return MemoryDesc(dims, data_type, numbers)
    return MemoryDesc(dims, data_type, expand(tag, len(dims)))


def strides_of(case: Case, *tags: str) -> list[str]:
    """The parts of the strides option; raises BadValue where a tag is given as well."""
    text = str(case["strides"])
    parts = text.split(":") if text else [""] * len(tags)
    driver = DRIVERS[case.driver]
    for part, tag in zip(parts, tags, strict=True):
        option = driver.find(tag)
        assert option is not None
        if part and str(case[tag]) != option.default:
            raise BadValue(f"--strides={text} with --{tag}={case[tag]}: one of them says it all")
    return parts


def forward(case: Case) -> PropKind:
    """The propagation of a forward case; raises Unimplemented for a backward one."""
    direction = str(case["dir"])
    if direction.startswith("BWD"):
        raise Unimplemented("no backward propagation")
    return PropKind.forward_inference if direction == "FWD_I" else PropKind.forward_training


def has_sum(case: Case) -> bool:
    """Whether a post-op reads the destination."""
    return any(isinstance(entry, parsed.Sum) for entry in case["attr-post-ops"].items)


def bad_in_place(case: Case, src: DataType, dst: DataType, src_tag: str, dst_tag: str) -> bool:
    """Whether a case asks for one buffer for tensors that differ."""
    return bool(case["inplace"]) and (src is not dst or dst_tag not in ("any", src_tag))


def shapes(case: Case) -> Shapes:
    """The problem of a driver whose problems are dims."""
    assert isinstance(case.problem, Shapes)
    return case.problem


def descriptor(case: Case) -> Descriptor:
    """The problem of a driver whose problems are descriptors."""
    assert isinstance(case.problem, Descriptor)
    return case.problem


def desc_of(desc: Desc, argument: int) -> MemoryDesc:
    """The descriptor of one tensor of an operation."""
    return next(tensor.desc for tensor in desc.tensors if tensor.argument == argument)


def has(desc: Desc, argument: int) -> bool:
    """Whether an operation has a tensor."""
    return any(tensor.argument == argument for tensor in desc.tensors)


def zero_limit(data_type: DataType, plain: float = 30) -> float:
    """The percentage of zeros that is no reason for mistrust."""
    return max(plain, 65) if data_type is DataType.u8 else plain
