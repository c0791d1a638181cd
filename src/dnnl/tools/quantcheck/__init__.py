"""``dnnl quantcheck``: what integers do to a product or a model, and which scales would mend it."""

from dnnl.tools.quantcheck.case import check_case
from dnnl.tools.quantcheck.command import quantcheck
from dnnl.tools.quantcheck.layer import LayerReport
from dnnl.tools.quantcheck.mend import mended
from dnnl.tools.quantcheck.model import check_model
from dnnl.tools.quantcheck.report import Report

__all__ = ["LayerReport", "Report", "check_case", "check_model", "mended", "quantcheck"]
