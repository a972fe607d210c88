"""A whole federation in one process, without NVFlare."""
