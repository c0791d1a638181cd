"""``dnnl score``: a model over a data set of files, on the workers of Ray Data."""

from dnnl.tools.score.command import score

__all__ = ["score"]
