"""What each operator is: the types of its results, simpler operators, primitives.

A file has a family. Of each operator it says the types of its results (``_infer_x``), how it is
written as nodes of simpler ones where it has no primitive (``_expand_x``), and which primitives
compute it (``_lower_x``). Its rows are at the end: `OPERATORS`, and `MADE` of what only passes
write. `table` joins them.
"""
