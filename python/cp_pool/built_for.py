"""What the programs and the extension of this package were built for: the communication types, and a version of torch.
LibTorch has no stable interface: with another minor version they would crash or give wrong results."""

from __future__ import annotations

import importlib.util
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

# Links are not resolved: in a build folder the sources are links, and the built files are beside these links.
PACKAGE = Path(__file__).absolute().parent


def torch_folder() -> Path | None:
    """The folder in which `import torch` would find torch. Does not import it."""
    spec: ModuleSpec | None = (
        sys.modules["torch"].__spec__ if "torch" in sys.modules else importlib.util.find_spec("torch")
    )
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def installed_torch() -> str | None:
    """The version of the installed torch, such as 2.11.0+cu130; None if there is none."""
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
    """The version that this package was built for; None in a source tree, which has no built files."""
    try:
        from cp_pool import _built_for
    except ImportError:
        return None
    return _built_for.TORCH


def comm_types() -> tuple[str, ...] | None:
    """The names of the communication types (cases/comm_types.def); None in a source tree, which has no built files."""
    try:
        from cp_pool import _built_for
    except ImportError:
        return None
    return _built_for.COMM_TYPES


def torch_problem() -> str | None:
    """Why the built files cannot be used with the installed torch, as a sentence; None if they can."""
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
    """Raises ImportError with the sentence of torch_problem, if there is one. Call it before the extension is
    loaded."""
    problem = torch_problem()
    if problem is not None:
        raise ImportError(problem)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
