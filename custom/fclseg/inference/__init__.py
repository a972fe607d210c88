"""Inference for a clinician: label maps in the input's geometry, pictures to check them, and measurements."""

NOTICE = "Research software, not a medical device: not for clinical use."
"""The notice in all output of inference."""
