"""A page per patient and an index of all of them, each one file that needs no other."""
