"""`quabla-jax demo`: fit the lynx-hare record, compare the targets, write the picture, the model and a page."""

from .run import run

__all__ = ["run"]
