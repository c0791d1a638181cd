"""What each operator is: the types of its results, simpler operators, primitives."""
