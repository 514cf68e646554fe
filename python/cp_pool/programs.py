"""Finds the programs of cp-pool, and implements the commands `cp-pool` and `cp-pool-worker` of a wheel."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from cp_pool.built_for import PACKAGE, torch_folder, torch_problem
from cp_pool.exit_codes import ExitCode
from cp_pool.result import PoolError

# Every other command starts the shipped worker unless an argument names another one.
COMMANDS_WITHOUT_RANKS = frozenset(
    ("list", "report", "runs", "show", "diff", "explain", "config", "status", "stop", "help", "completion")
)
_OTHER_WORKERS = ("--worker", "--adapter", "--help", "-h")


def packaged(program: str) -> Path:
    """The path of the program in a wheel."""
    return PACKAGE / "bin" / program


def find_binary(binary: str | os.PathLike[str] | None = None) -> str:
    """The path of cp-pool: `binary`, else CP_POOL_BINARY, else the one of the package, else the one in PATH. Raises
    PoolError if there is none."""
    for name, source in ((binary, "binary"), (os.environ.get("CP_POOL_BINARY"), "CP_POOL_BINARY")):
        if not name:
            continue
        found = shutil.which(os.fspath(name))
        if found is None:
            raise PoolError(f"{source}: there is no program '{os.fspath(name)}'")
        return found
    # The first is that of a wheel, the second that of a build folder, where bin is beside python.
    for path in (packaged("cp-pool"), PACKAGE.parents[1] / "bin" / "cp-pool"):
        if path.is_file():
            return str(path)
    found = shutil.which("cp-pool")
    if found is None:
        raise PoolError(
            "cp-pool is not found: CP_POOL_BINARY does not name it, and it is neither in this package nor in PATH"
        )
    return found


def environment_for(binary: str | os.PathLike[str], env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a packaged program finds the libraries of torch. If torch is installed beside this
    package, the program finds them by itself. If torch is in another folder (--system-site-packages, a .pth file), they
    are added to LD_LIBRARY_PATH."""
    told = dict(env)
    torch = torch_folder()
    if Path(binary).parent != PACKAGE / "bin" or torch is None or torch.parent == PACKAGE.parent:
        return told
    nvidia = torch.parent / "nvidia"
    folders = [torch / "lib", *(nvidia / part / "lib" for part in ("cu13", "nccl", "cudnn"))]
    known = told.get("LD_LIBRARY_PATH", "").split(":")
    paths = [str(folder) for folder in folders if folder.is_dir() and str(folder) not in known]
    told["LD_LIBRARY_PATH"] = ":".join([*paths, *(path for path in known if path)])
    return told


def check_shipped_worker(binary: str | os.PathLike[str]) -> None:
    """Raises PoolError if the shipped worker of this cp-pool cannot use the installed torch."""
    if Path(binary).parent == PACKAGE / "bin" and (problem := torch_problem()):
        raise PoolError(problem)


def starts_shipped_worker(arguments: Sequence[str]) -> bool:
    if not arguments or arguments[0].startswith("-") or arguments[0] in COMMANDS_WITHOUT_RANKS:
        return False
    return not any(word.split("=", 1)[0] in _OTHER_WORKERS for word in arguments)


def _execute(program: str) -> NoReturn:
    path = packaged(program)
    try:
        if program == "cp-pool-worker" or starts_shipped_worker(sys.argv[1:]):
            check_shipped_worker(path)
        os.execve(path, sys.argv, environment_for(path, os.environ))
    except PoolError as error:
        print(f"cp-pool: error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"cp-pool: error: cannot start {path}: {error.strerror}", file=sys.stderr)
    sys.exit(ExitCode.infra)


def run_cp_pool() -> NoReturn:
    """The command cp-pool of a wheel."""
    _execute("cp-pool")


def run_worker() -> NoReturn:
    """The command cp-pool-worker of a wheel."""
    _execute("cp-pool-worker")
