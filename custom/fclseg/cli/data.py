"""Placeholder until its owner fills it in this hour."""


def register(subparsers):
    pass
