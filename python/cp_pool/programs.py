"""Where the programs of cp-pool are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cp_pool.result import PoolError


def find_binary(binary: str | os.PathLike[str] | None = None) -> str:
    """The path of cp-pool: `binary`, else CP_POOL_BINARY, else that of the package, else that in PATH. Raises
    PoolError."""
    for name, source in ((binary, "binary"), (os.environ.get("CP_POOL_BINARY"), "CP_POOL_BINARY")):
        if not name:
            continue
        found = shutil.which(os.fspath(name))
        if found is None:
            raise PoolError(f"{source}: there is no program '{os.fspath(name)}'")
        return found
    packaged = Path(__file__).resolve().parent / "bin" / "cp-pool"
    if packaged.is_file():
        return str(packaged)
    found = shutil.which("cp-pool")
    if found is None:
        raise PoolError(
            "cp-pool is not found: neither CP_POOL_BINARY names it, nor is it beside this package or in PATH"
        )
    return found
