"""The start page: segment and label without a terminal."""
