"""Any PyTorch module, seen from outside: how it is called, and the attention that it computes meanwhile."""
