"""What we are compared with, and why a peer that is not there is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata

from dnnl.language.errors import BadValue
from dnnl.tools.bench.peers.base import Peer
from dnnl.tools.bench.peers.onednn import OneDnn
from dnnl.tools.bench.peers.pytorch import PyTorch

ONEDNN = "oneDNN"
PYTORCH = "PyTorch"
ONNXRUNTIME = "ONNX Runtime"
_LIBRARIES: dict[str, Callable[[], Peer]] = {ONEDNN: OneDnn, PYTORCH: PyTorch}


@dataclass(frozen=True, slots=True)
class Peers:
    """The libraries that run our cases, the version of every peer that is there, and the reason
    of every other one."""

    libraries: Mapping[str, Peer]
    versions: Mapping[str, str]
    missing: Mapping[str, str]


def find() -> Peers:
    """Load every peer that is installed."""
    libraries: dict[str, Peer] = {}
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, load in _LIBRARIES.items():
        try:
            libraries[name] = load()
        except (BadValue, ImportError, OSError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
        else:
            versions[name] = libraries[name].name.partition(" ")[2]
    try:
        versions[ONNXRUNTIME] = metadata.version("onnxruntime")
    except metadata.PackageNotFoundError as error:
        missing[ONNXRUNTIME] = f"{type(error).__name__}: {error}"
    return Peers(libraries, versions, missing)
