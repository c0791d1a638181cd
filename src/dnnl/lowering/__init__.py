"""From a graph to steps: primitives with the layouts that they choose, and reorders between."""
