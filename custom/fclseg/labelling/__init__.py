"""Labelling on a local page: outlines to correct, what to label next, labels saved at once, and training on them."""
