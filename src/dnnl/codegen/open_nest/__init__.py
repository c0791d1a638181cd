"""The same nests for sizes that only the execution knows."""
