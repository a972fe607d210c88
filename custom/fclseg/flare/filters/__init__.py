"""Filters that change a message on its way. A job adds or omits them: PTNU, DP, noise."""
