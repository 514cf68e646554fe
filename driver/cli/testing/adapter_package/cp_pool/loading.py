"""Loads adapters of the stand-in package, which are JSON files with their declaration."""

import json
import time
from typing import Any


class LoadError(Exception):
    details = ""


class Adapter:
    def __init__(self, declared: dict[str, Any]) -> None:
        self._declared = declared

    def declaration(self) -> dict[str, Any]:
        return self._declared


def load(spec: str) -> Adapter:
    with open(spec, encoding="utf-8") as file:
        declared = json.load(file)
    if declared.get("hangs"):
        time.sleep(3600)
    return Adapter(declared)
