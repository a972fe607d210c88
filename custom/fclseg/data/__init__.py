"""Cardiac data: readers, pre-processing, slice store, splits, augmentation and the phantom."""
