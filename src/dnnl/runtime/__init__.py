"""Where tensors live and generated code runs: engines, streams, memory, threads."""
