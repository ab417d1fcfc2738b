"""The console that every command prints with."""

from cutaway.pictures.console import Console

__all__ = ["Console"]
