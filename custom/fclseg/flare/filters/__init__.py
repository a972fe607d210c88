"""What changes a message on its way: PTNU and DP as filters that a job adds or leaves out."""
