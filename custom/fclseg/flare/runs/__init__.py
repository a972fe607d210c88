"""Runs on disk: their folders, what people see of them, and how the server continues interrupted ones."""
