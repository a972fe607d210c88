"""Self-supervised methods, one file each: pure PyTorch, no federation."""
