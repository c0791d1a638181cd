"""``dnnl bench`` speaks the language of oneDNN's benchdnn: cases, modes, states, repro lines."""

from dnnl.tools.bench.command import bench

__all__ = ["bench"]
