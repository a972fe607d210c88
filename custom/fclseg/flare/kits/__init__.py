"""Startup kits: how the coordinator makes them, what they contain, and what a site checks before it starts."""
