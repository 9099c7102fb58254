"""Structured control flow for array programs, on XLA, MLX and PyTorch."""

__version__ = "0.1.0"
