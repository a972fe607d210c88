"""What changes a message on its way: PTNU, DP and noise as filters that a job adds or leaves out."""
