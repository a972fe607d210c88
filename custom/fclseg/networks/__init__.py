"""The U-Net of the paper and the small heads that self-supervised methods put on its encoder."""
