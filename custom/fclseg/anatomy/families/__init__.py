"""One module per anatomy, with its ``ANATOMY`` and its reader. A new module here is a new anatomy."""
