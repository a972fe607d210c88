"""Fine-tuning a pre-trained encoder through the MONAI bundle, and its metrics."""
