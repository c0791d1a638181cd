"""Attention: softmax(query key^T) value by blocks of scores, and its gradients."""
