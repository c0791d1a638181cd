"""Speed beside the machine's limits and beside oneDNN, PyTorch and ONNX Runtime."""
