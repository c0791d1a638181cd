"""From LLVM IR to an image: optimisation, object code, the cache on disk, parallel builds."""
