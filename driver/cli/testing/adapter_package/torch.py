"""A stand-in for torch in tests in which nothing is computed."""

__version__ = "0.0.test"
