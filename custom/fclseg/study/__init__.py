"""The tables of the paper: runs, statistics, figures and the report."""
