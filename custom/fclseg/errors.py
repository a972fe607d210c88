"""Errors with messages for the user."""


class FCLSegError(Exception):
    """One sentence for the user: what is wrong, where, and what to do. The command line prints it as it is."""


class DataError(FCLSegError):
    """A problem with images, labels, folders or splits that the user can fix."""


class PassingError(FCLSegError):
    """A problem that may pass without any change, such as a site that is not connected. The server tries again."""


class PublicError(FCLSegError):
    """An error that may leave a site: its text contains no path, file or patient name. All other errors stay there."""
