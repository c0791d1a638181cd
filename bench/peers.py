"""What we are compared with, and why a peer that is not there is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from importlib import metadata

from dnnl.language.errors import BadValue
from dnnl.tools.bench.peers.base import Peer
from dnnl.tools.bench.peers.onednn import OneDnn
from dnnl.tools.bench.peers.onednn_builds import OpenMp
from dnnl.tools.bench.peers.pytorch import PyTorch

ONEDNN = "oneDNN"
ONEDNN_OPENMP = "oneDNN OpenMP"
PYTORCH = "PyTorch"
ONNXRUNTIME = "ONNX Runtime"
_LIBRARIES: dict[str, Callable[[int], Peer]] = {
    ONEDNN: OneDnn,
    ONEDNN_OPENMP: lambda num_threads: OneDnn(num_threads, (OpenMp,)),
    PYTORCH: lambda _: PyTorch(),
}
NAMES = (*_LIBRARIES, ONNXRUNTIME)


@dataclass(frozen=True, slots=True)
class Peers:
    """The libraries that run our cases, the version of every peer that is there, and the reason
    of every other one."""

    libraries: Mapping[str, Peer]
    versions: Mapping[str, str]
    missing: Mapping[str, str]


def find(num_threads: int, wanted: Collection[str] = NAMES) -> Peers:
    """Load every peer that is installed, of those that are wanted."""
    libraries: dict[str, Peer] = {}
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, load in _LIBRARIES.items():
        if name not in wanted:
            continue
        try:
            libraries[name] = load(num_threads)
        except (BadValue, ImportError, OSError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
        else:
            versions[name] = libraries[name].name.partition(" ")[2]
    if ONNXRUNTIME not in wanted:
        return Peers(libraries, versions, missing)
    try:
        versions[ONNXRUNTIME] = metadata.version("onnxruntime")
    except metadata.PackageNotFoundError as error:
        missing[ONNXRUNTIME] = f"{type(error).__name__}: {error}"
    return Peers(libraries, versions, missing)
