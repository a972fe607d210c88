"""Families of images: what they show, and how a folder becomes ``Volume`` records."""
