"""Loads adapters of the stand-in package, which are JSON files with their declaration. `hangs` and `thread` say what the
import does, and `counts` names a file that gets a line for each import."""

import json
import threading
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
    if counts := declared.get("counts"):
        with open(counts, "a", encoding="utf-8") as imports:
            imports.write("imported\n")
    if declared.get("thread"):
        threading.Thread(target=time.sleep, args=(3600,), name="of the test", daemon=True).start()
    if declared.get("hangs"):
        time.sleep(3600)
    return Adapter(declared)
