"""Adapters that note what their import and their ranks see. The environment says what the import does:

CP_POOL_TEST_IMPORTS  a file that gets a line for each import
CP_POOL_TEST_FACTS    a folder in which each rank writes what it sees, into RANK.json
CP_POOL_TEST_DOES     words: thread, socket, process or rank, which are things that ranks must do by themselves;
                      together: the import waits until three imports have begun
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import torch

from cp_pool import Skip, adapter

VERSION = 1

with open(os.environ["CP_POOL_TEST_IMPORTS"], "a", encoding="utf-8") as imports:
    imports.write(f"{os.getpid()}\n")
print("the adapter was imported")
os.environ["CP_POOL_TEST_SET"] = "by the import"
os.environ.pop("CP_POOL_TEST_REMOVED", None)
ARGV = list(sys.argv)
STDIN = os.readlink("/proc/self/fd/0")
DOES = os.environ.get("CP_POOL_TEST_DOES", "").split()
STOPS = threading.Event()


def watch() -> None:
    STOPS.wait()


if "thread" in DOES:
    threading.Thread(target=watch, name="watcher of mine", daemon=True).start()
elif "socket" in DOES:
    SOCKET = socket.socket()
elif "process" in DOES:
    PROCESS = subprocess.Popen(["sleep", "3600"])
elif "rank" in DOES:
    RANK = int(os.environ["RANK"])
while "together" in DOES and len(Path(os.environ["CP_POOL_TEST_IMPORTS"]).read_text(encoding="utf-8").split()) < 3:
    time.sleep(0.01)


@adapter(features=["causal"])
def facts(q: Any, k: Any, v: Any, case: Any, ctx: Any) -> None:
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CP_POOL_TEST_SET", "CP_POOL_TEST_REMOVED", "CP_POOL_START_TIMEOUT_MS")
    seen = {
        "environment": {name: os.environ.get(name) for name in names},
        "in C": subprocess.run(["printenv", "CP_POOL_TEST_SET"], capture_output=True, text=True, check=False).stdout,
        "argv": ARGV,
        "argv now": sys.argv,
        "stdin": STDIN,
        "folder": os.getcwd(),
        "path": sys.path,
        "threads": torch.get_num_threads(),
        "random": [random.random(), float(numpy.random.rand()), float(torch.rand(1)), torch.initial_seed()],
        "group": os.getpgid(0) == os.getpid(),
        "watchers": sum(thread.name == "watcher of mine" for thread in threading.enumerate()),
    }
    Path(os.environ["CP_POOL_TEST_FACTS"], f"{ctx.rank}.json").write_text(json.dumps(seen), encoding="utf-8")
    raise Skip(f"version {VERSION}")
