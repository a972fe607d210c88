"""One self-contained HTML page for a study or a pre-training run."""
