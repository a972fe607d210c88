"""Images as training data: pre-processing, slice store, splits, batches, augmentation and the phantom."""
