"""Writing LLVM IR: modules and values, vectors of any length on registers, moves among lanes."""
