"""Which torch the programs and the extension of this package were built for, and whether it is the one that is
installed. LibTorch has no stable interface: with another minor version they would crash, or compute nonsense."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

# Not resolved: a build folder has links to the sources, and beside them what was built.
PACKAGE = Path(__file__).absolute().parent


def torch_folder() -> Path | None:
    """Where `import torch` would find it. Imports nothing of it."""
    spec: ModuleSpec | None = (
        sys.modules["torch"].__spec__ if "torch" in sys.modules else importlib.util.find_spec("torch")
    )
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def installed_torch() -> str | None:
    """The version of that torch, such as 2.11.0+cu130."""
    folder = torch_folder()
    if folder is None:
        return None
    try:
        text = (folder / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"^__version__ = ['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found.group(1) if found else None


def expected_torch() -> str | None:
    """The version that this package was built for; None in a source tree, which was built for nothing."""
    try:
        from cp_pool import _built_for
    except ImportError:
        return None
    return _built_for.TORCH


def torch_problem() -> str | None:
    """A sentence that says why what was built cannot be used with the installed torch; None if it can."""
    expected = expected_torch()
    if expected is None:
        return None
    wanted = _minor(expected)
    installed = installed_torch()
    if installed is None:
        return f"this cp_pool was built for torch {wanted} ({expected}), and {sys.executable} has none: install it"
    if _minor(installed) != wanted:
        return (
            f"this cp_pool was built for torch {wanted} ({expected}), and {sys.executable} has torch {installed}: "
            f"install torch {wanted}, or build cp_pool for {_minor(installed)} (pip install . in its source tree)"
        )
    return None


def require_torch() -> None:
    """Raises ImportError with that sentence. Call it before the extension is loaded."""
    problem = torch_problem()
    if problem is not None:
        raise ImportError(problem)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
