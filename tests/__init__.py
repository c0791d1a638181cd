"""The tests; ``tests.check`` has what they share."""

import os

os.environ.setdefault("DNNL_OVERSUBSCRIBE", "1")
