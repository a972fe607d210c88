"""Errors with messages for the user."""


class FCLSegError(Exception):
    """One sentence for the user: what is wrong, where, and what to do. The command line prints it as it is."""


class DataError(FCLSegError):
    """Something about images, labels, folders or splits that the user can fix."""


class PublicError(FCLSegError):
    """A sentence that may leave a site: it names no path, no file and no patient. All others stay where they arose."""
