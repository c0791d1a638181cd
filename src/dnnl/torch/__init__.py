"""PyTorch: its graphs as models, and the backend ``dnnl`` of `torch.compile`.

The package is imported where PyTorch is in use: nothing else in the library imports it.
"""

try:
    import torch as torch
except ModuleNotFoundError as error:
    rule = "pip install 'dnnl[torch]' brings it"
    raise ModuleNotFoundError(f"this needs the package torch: {rule}", name=error.name) from None
