"""What we are compared with. A peer that cannot be had is a :class:`Missing` that says why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata

from bench.peers.errors import PeerError
from bench.peers.onednn import OneDnn
from bench.peers.pytorch import PyTorch

ONEDNN = "oneDNN"
PYTORCH = "PyTorch"
ONNXRUNTIME = "ONNX Runtime"


@dataclass(frozen=True, slots=True)
class Peers:
    """The peers that are there, and why the others are not."""

    onednn: OneDnn | None
    pytorch: PyTorch | None
    onnxruntime: str | None
    missing: dict[str, str]

    @property
    def versions(self) -> dict[str, str]:
        """The version of each peer that is there."""
        versions = {}
        if self.onednn is not None:
            versions[ONEDNN] = self.onednn.version
        if self.pytorch is not None:
            versions[PYTORCH] = self.pytorch.version
        if self.onnxruntime is not None:
            versions[ONNXRUNTIME] = self.onnxruntime
        return versions

    def set_num_threads(self, num_threads: int) -> None:
        """The threads of everything that peers make and run from now on."""
        if self.pytorch is not None:
            self.pytorch.set_num_threads(num_threads)
        if self.onednn is not None:
            self.onednn.set_num_threads(num_threads)


def find() -> Peers:
    """Load every peer that is installed."""
    missing: dict[str, str] = {}

    def attempt(name: str, load: Callable[[], object]) -> object:
        try:
            return load()
        except (PeerError, ImportError, OSError, metadata.PackageNotFoundError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
            return None

    pytorch = attempt(PYTORCH, PyTorch)
    onednn = attempt(ONEDNN, OneDnn)
    version = attempt(ONNXRUNTIME, lambda: metadata.version("onnxruntime"))
    return Peers(
        onednn if isinstance(onednn, OneDnn) else None,
        pytorch if isinstance(pytorch, PyTorch) else None,
        version if isinstance(version, str) else None,
        missing,
    )
