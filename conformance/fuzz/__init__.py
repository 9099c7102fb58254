"""Random control-flow programs on every backend, and what is wrong made small: python -m conformance.fuzz."""

from .programs import case_of, generate, program_of

__all__ = ["case_of", "generate", "program_of"]
