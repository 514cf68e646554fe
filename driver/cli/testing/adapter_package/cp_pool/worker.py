"""A worker that answers as scripted_worker.py does, and skips the models that its adapter declares in `skips`."""

import json
import os
import runpy
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from cp_pool.loading import Adapter, LoadError, load


def _take_stdout() -> int:
    return 1


def prepare(rehearse: bool, backward: bool = True) -> None:
    if "CP_POOL_TEST_NO_EXTENSION" in os.environ:
        raise LoadError("the extension module cannot be loaded")


def explain_skips(adapter: Adapter, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        fields = json.loads(line)
        model = fields.get("case", fields)["model"]
        skipped = model in adapter.declaration().get("skips", [])
        answer: dict[str, Any] = {"skip": f"it has no {model}" if skipped else ""}
        if fields.get("pairs") and not skipped:
            answer["pairs"] = [10, 30]
        yield json.dumps(answer)


def main(argv: list[str], stdout_fd: int, forked: bool = False, adapter: Adapter | None = None) -> int:
    adapter = adapter or load(argv[0])
    if "--explain-skips" in argv:
        print("chatter")
        for answer in explain_skips(adapter, sys.stdin):
            print(answer)
        return 0
    print("forked" if forked else "executed", file=sys.stderr)
    runpy.run_path(str(Path(__file__).parents[2] / "scripted_worker.py"), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], 1))
