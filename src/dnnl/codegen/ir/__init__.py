"""LLVM IR: modules and values, vectors of any length on registers, shuffles."""
