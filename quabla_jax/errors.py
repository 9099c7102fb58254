"""The exception classes of the Quabla dialect.

Every message says where, what was expected, what came, and what to do.
"""

__all__ = [
    "QuablaError",
    "RetraceLimitError",
    "RetraceWarning",
    "TracerError",
    "UnsupportedOperationError",
]


class QuablaError(Exception):
    """Base class of the errors that only this library raises."""


class TracerError(QuablaError, TypeError):
    """A traced value was used where a concrete one is needed, or captured by a control-flow region."""


class UnsupportedOperationError(QuablaError, ValueError, NotImplementedError):
    """A program holds an operation that the target cannot run.

    Attributes:
        op: name of the primitive or operation that has no rule, or None.
        device: name of the target ("mlx", "torchscript", "export", ...), or None.
    """

    def __init__(self, message: str, *, op: str | None = None, device: str | None = None):
        super().__init__(message)
        self.op = op
        self.device = device


class RetraceLimitError(QuablaError, ValueError):
    """Kept for programs that catch it; Quabla 1.0 no longer raises it and neither does this library."""


class RetraceWarning(UserWarning):
    """A trace cache was full and dropped its least recently used entry."""
