"""Errors whose message is meant for the person in front of the screen. Everything else is a bug and keeps its
traceback.
"""


class UserError(Exception):
    """The user's input or machine stands in the way. The message names cause and remedy and is shown as it
    is.
    """


class PlanError(UserError):
    """No plan fits this machine. The message says what is needed, what is there and the smallest change that
    would work.
    """


class DocumentError(UserError):
    """The file cannot be read as a book. The message names what the file is and what to do."""


class PasswordNeeded(DocumentError):
    """The document is encrypted and the given password (or none) does not open it."""


class ScannedPages(DocumentError):
    """The pages are pictures without a text layer; reading it again with `ocr=True` may find the text."""
