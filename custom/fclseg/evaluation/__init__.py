"""Compares results with experts' label maps, by hospital and by group of patients."""
