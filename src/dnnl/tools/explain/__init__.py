"""``dnnl explain``: what a verbose line or a line of ``dnnl bench`` says, in words."""

from dnnl.tools.explain.command import explain

__all__ = ["explain"]
