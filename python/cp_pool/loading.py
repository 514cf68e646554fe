"""Finds an adapter by ``FILE.py[:NAME]`` or ``package.module:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from cp_pool.adapter import Adapter, DeclarationError, adapter
from cp_pool.errors import escaped, one_line, user_traceback

__all__ = ["LoadError", "load"]


class LoadError(Exception):
    """An adapter cannot be loaded. The text is one sentence; ``details`` is a traceback, or empty."""

    def __init__(self, text: str, details: str = "") -> None:
        super().__init__(escaped(text))
        self.details = details


def load(spec: str) -> Adapter:
    """Loads the adapter that ``spec`` names. Raises LoadError if anything goes wrong."""
    try:
        return _load(spec)
    except LoadError as error:
        raise LoadError(f"adapter {error}", error.details) from None


def _load(spec: str) -> Adapter:
    place, name = _split(spec)
    module = _module_of(place)
    if name:
        found = _attribute(module, name, place)
        return found if isinstance(found, Adapter) else _as_adapter(found, name, place)
    return _only_adapter(module, place)


def find(spec: str) -> Any:
    """What ``FILE.py:NAME`` or ``package.module:NAME`` names. Raises LoadError, whose text begins with the place."""
    place, name = _split(spec)
    if not name:
        raise LoadError(f"{spec!r}: neither FILE.py:NAME nor package.module:NAME")
    found: Any = find_module(place)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LoadError(f"{place}: it has no {name!r}") from None
    return found


def find_module(place: str) -> ModuleType:
    """The module or file, imported at most once. Raises LoadError."""
    if place not in _modules:
        _modules[place] = _module_of(place)
    return _modules[place]


_modules: dict[str, ModuleType] = {}


def _split(spec: str) -> tuple[str, str]:
    """The file or module, and the name, which may be empty."""
    place, separator, name = spec.rpartition(":")
    if not separator or os.sep in name:
        place, name = spec, ""
    if place.endswith(".py"):
        return place, name
    if not name:
        raise LoadError(f"{spec!r}: neither FILE.py, FILE.py:NAME nor package.module:NAME")
    return place, name


def _module_of(place: str) -> ModuleType:
    try:
        if place.endswith(".py"):
            return _module_of_file(place)
        sys.path.insert(0, os.getcwd())  # as python -m finds modules
        return importlib.import_module(place)
    except LoadError:
        raise
    except SyntaxError as error:
        where = f"{error.filename}:{error.lineno}"
        raise LoadError(f"{place}: {where}: {type(error).__name__}: {error.msg}", user_traceback(error)) from None
    except BaseException as error:  # sys.exit and KeyboardInterrupt during the import are faults of the module too
        raise LoadError(f"{place}: its import raised {one_line(error)}", user_traceback(error)) from None


def _module_of_file(path: str) -> ModuleType:
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise LoadError(f"{path}: there is no such file")
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:  # so that a file called torch.py does not hide torch
        name = f"cp_pool_adapter_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as for a script, so that modules beside the file are found
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _attribute(module: ModuleType, name: str, place: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            names = ", ".join(_adapters(module)) or "none"
            raise LoadError(f"{place}: it has no {name!r}; its adapters: {names}") from None
    return found


def _adapters(module: ModuleType) -> dict[str, Adapter]:
    """The adapters that a module defines or imports, by their names in the module."""
    found: dict[str, Adapter] = {}
    for name, value in vars(module).items():
        made = value if isinstance(value, Adapter) else getattr(value, "__cp_pool_adapter__", None)
        if isinstance(made, Adapter) and made not in found.values():
            found[name] = made
    return found


def _only_adapter(module: ModuleType, place: str) -> Adapter:
    found = _adapters(module)
    if not found:
        raise LoadError(f"{place}: nothing in it has the decorator @cp_pool.adapter")
    if len(found) > 1:
        raise LoadError(
            f"{place}: it has several adapters: choose one, as {place}:{next(iter(found))}"
            f" (there are {', '.join(found)})"
        )
    return next(iter(found.values()))


def _as_adapter(thing: Any, name: str, place: str) -> Adapter:
    """The adapter of a decorated thing. Raises LoadError for a thing without the decorator."""
    made = getattr(thing, "__cp_pool_adapter__", None)
    if isinstance(made, Adapter):
        return made
    try:
        adapter()(thing)
    except DeclarationError as error:
        raise LoadError(f"{place}:{name}: {error}") from None
    raise LoadError(f"{place}:{name}: it has not the decorator @cp_pool.adapter")
