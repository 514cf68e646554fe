"""Stands for torch where an adapter is only asked about: nothing here computes."""

__version__ = "0.0.test"
