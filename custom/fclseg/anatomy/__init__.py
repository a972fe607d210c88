"""What is imaged, and how a folder of it becomes ``Volume`` records."""
