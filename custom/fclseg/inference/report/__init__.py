"""One page per patient and an index of all patients, each a self-contained file."""
