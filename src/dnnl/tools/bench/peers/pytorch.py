"""PyTorch as a peer: the same operation by the functions that a program would call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.language.errors import BadValue
from dnnl.primitives.desc import Desc
from dnnl.reference.arrays import Array, f64
from dnnl.tools.bench.peers.base import LARGEST_BELOW_S32, Deviation
from dnnl.tools.bench.peers.pytorch_functions import follow
from dnnl.tools.bench.peers.pytorch_operations import program
from dnnl.tools.bench.peers.pytorch_program import Program
from dnnl.tools.bench.peers.pytorch_tensors import Tensor, empty, plain
from dnnl.types.arg import Arg, owner_of
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum


class PyTorch:
    """The package; raises BadValue where it is not installed."""

    queue = None

    def __init__(self) -> None:
        try:
            self.torch: Any = importlib.import_module("torch")
        except ModuleNotFoundError:
            raise BadValue("--peer=torch needs PyTorch: pip install torch") from None
        self.name = f"torch {self.torch.__version__}"

    def make(
        self,
        desc: Desc,
        attr: PrimitiveAttr,
        num_threads: int,
        known: Desc | None = None,
        forward: Desc | None = None,
    ) -> TorchOperation:
        """The operation as it was asked for; raises Unimplemented where PyTorch has no equal."""
        desc = desc if known is None else known
        self.torch.set_num_threads(num_threads)
        return TorchOperation(self, desc, attr, program(desc, attr))


class TorchOperation:
    """Functions of PyTorch on tensors of their own."""

    def __init__(self, peer: PyTorch, desc: Desc, attr: PrimitiveAttr, chosen: Program) -> None:
        self._peer, self._desc, self._attr, self._program = peer, desc, attr, chosen
        self._tensors: dict[int, Tensor] = {}
        self._values: dict[int, Array] = {}
        self._results: dict[int, Tensor] = {}
        self.impl_info = chosen.name

    def load(self, values: Mapping[int, Array], parameters: Mapping[int, MemoryDesc]) -> None:
        """Make every tensor; scales and zero points stay arrays."""
        torch, views = self._peer.torch, dict(self._program.views)
        descs = {tensor.argument: tensor.desc for tensor in self._desc.tensors}
        for argument, desc in parameters.items():
            if argument & (Arg.SCALES | Arg.ZERO_POINTS):
                self._values[argument] = values[argument]
                continue
            # Its layout is what our implementation likes, where the case left it open.
            descs[argument] = desc.with_tag("any") if desc.inner_blocks else desc
            views[argument] = plain(descs[argument], channels_last=False)
        for argument, array in values.items():
            if owner_of(argument)[1]:  # a buffer of indices
                self._values[argument] = array
        descs.pop(Arg.WORKSPACE, None)
        for argument, desc in descs.items():
            tensor = self._tensors[argument] = empty(torch, desc, views[argument])
            if argument in values:
                data = torch.from_numpy(np.ascontiguousarray(values[argument], np.float64))
                tensor.copy_(data.reshape(tensor.shape))
            else:
                tensor.zero_()

    def bind(self) -> Callable[[], object]:
        """One execution per call, after a first one."""
        torch, outputs = self._peer.torch, self._desc.outputs
        first = outputs[0].argument
        dst = self._tensors[first]
        sums = any(isinstance(entry, PostOpSum) for entry in self._attr.post_ops)
        complete = self._program.complete
        out = torch.empty_like(dst) if sums and not complete else dst
        try:
            compute = self._program.build(torch, self._tensors, self._values, out)
            steps = [] if complete else follow(torch, self._attr, self._tensors)
            copies: dict[int, Callable[[Tensor], Tensor]] = {}

            def run() -> None:
                made = compute()
                results = dict(made) if isinstance(made, Mapping) else {first: made}
                for step in steps:
                    results[first] = step(results[first])
                for argument, copy in copies.items():
                    results[argument] = copy(results[argument])
                self._results = results

            guarded: Callable[[], object] = torch.inference_mode()(run)
            guarded()
            for tensor in outputs:
                given = tensor.desc.format_kind is not FormatKind.any
                if given and tensor.argument in self._results:
                    own = self._tensors[tensor.argument]
                    if not _alike(self._results[tensor.argument], own):
                        copies[tensor.argument] = own.copy_
        except (RuntimeError, TypeError) as error:
            if isinstance(error, Unimplemented):
                raise
            reason = str(error).partition("\n")[0]
            raise Unimplemented(f"PyTorch says: {reason}") from None
        return guarded

    def read(self, argument: int) -> Array:
        """An output."""
        result = self._results[argument].detach().to(self._peer.torch.float64)
        return f64(result.reshape(self._desc.desc_of(argument).dims).numpy())

    def deviation(self, exact: Array) -> Deviation | None:
        """Its f32 saturate at the largest one that s32 holds."""
        beyond = exact > LARGEST_BELOW_S32
        if self._desc.outputs[0].desc.data_type is not DataType.s32 or not beyond.any():
            return None
        return Deviation("it saturates below the largest s32", beyond)

    def sums(self, kind: str) -> Array:
        """PyTorch stores no compensation."""
        raise Unimplemented(f"{self._peer.name} has no {kind}")


def _alike(result: Tensor, dst: Tensor) -> bool:
    """Whether the elements of two tensors are stored in the same order."""
    pairs = zip(result.stride(), dst.stride(), result.shape, strict=True)
    return all(first == second for first, second, size in pairs if size > 1)
