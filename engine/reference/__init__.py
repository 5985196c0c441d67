"""The executor in PyTorch, which runs everywhere and is what others are checked against."""
