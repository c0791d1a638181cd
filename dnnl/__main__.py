"""``python -m dnnl`` is the command ``dnnl``."""

import sys

from dnnl.tools.cli import main

sys.exit(main())
