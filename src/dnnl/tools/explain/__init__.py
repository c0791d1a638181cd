"""``dnnl explain``: what a verbose line or a line of ``dnnl bench`` says, in prose."""

from dnnl.tools.explain.command import explain

__all__ = ["explain"]
