"""The one error that users see: which file, which field, what is wrong and what to change."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input or usage (exit code 2). Its text is one line.

    Parameters
    ----------
    message:
        What is wrong, the value met, and what to change.
    source:
        The file (or the name of the in-memory object) that holds it, if known.
    field:
        Dotted path of the field inside the source, if one field is to blame.
    """

    def __init__(self, message: str, *, source: str | None = None, field: str | None = None) -> None:
        self.message = " ".join(message.split())
        self.source = source
        self.field = field
        super().__init__(": ".join(part for part in (source, field, self.message) if part))

    def in_source(self, source: str) -> InputError:
        """Return the same error with the file's name put in front."""
        return InputError(self.message, source=source, field=self.field)
