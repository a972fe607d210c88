"""FCLSeg: federated contrastive pre-training for medical image segmentation with few labels."""

__version__ = "0.2.0"
