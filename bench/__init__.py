"""Speed relative to the machine's limits, oneDNN, PyTorch and ONNX Runtime."""
