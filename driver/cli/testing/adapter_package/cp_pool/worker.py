"""A worker that answers as scripted_worker.py does, and skips the models that its adapter declares in `skips`."""

import json
import runpy
import sys
from pathlib import Path

from cp_pool.loading import load


def _take_stdout() -> int:
    return 1


def prepare(rehearse: bool) -> None:
    pass


def main(argv: list[str], stdout_fd: int, forked: bool = False) -> int:
    declared = load(argv[0]).declaration()
    if "--explain-skips" in argv:
        print("chatter")
        for line in sys.stdin:
            model = json.loads(line)["case"]["model"]
            print(json.dumps({"skip": f"it has no {model}" if model in declared.get("skips", []) else ""}))
        return 0
    print("forked" if forked else "executed", file=sys.stderr)
    runpy.run_path(str(Path(__file__).parents[2] / "scripted_worker.py"), run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], 1))
