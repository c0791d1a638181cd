"""A file per kind of engine.

A file whose name holds no underscore is an engine kind of that name and defines ``Engine``, a
`dnnl.runtime.backend.Backend`. Files with an underscore in the name are parts of those.
"""
