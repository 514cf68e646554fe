"""A stand-in for the package cp_pool in the tests of the command line. Its fork server is the real one."""

from pathlib import Path

__version__ = "0.0.test"
__path__.append(str(Path(__file__).parents[5] / "python" / "cp_pool"))
