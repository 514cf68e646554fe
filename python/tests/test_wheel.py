"""Builds the wheel with pip, installs it into a fresh environment and uses it there. That environment finds torch, in
the environment in which the wheel was built, through a .pth file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ID = "quick/causal/p2p/cp2/bshd/fp32"
TORCH = next((ROOT / ".venv/lib").glob("python3*/site-packages"))
TESTS = next((ROOT / ".venv-tests/lib").glob("python3*/site-packages"))


def environment(**more: str) -> dict[str, str]:
    """The environment without the variables by which the source tree or its programs could be found."""
    hidden = ("PYTHONPATH", "CP_POOL_BINARY", "LD_LIBRARY_PATH")
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **more}


def call(*words: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the wheel, unless CP_POOL_WHEEL names an existing one."""
    if given := os.environ.get("CP_POOL_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    settings = {
        "cmake.define.CP_POOL_SITE_PACKAGES": TORCH,
        "cmake.define.CMAKE_CXX_COMPILER": "g++",
        "cmake.define.CP_POOL_CUDA": "OFF",  # the CUDA part would take minutes, and no test here uses it
    }
    words: list[str | Path] = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    for name, value in settings.items():
        words += ["--config-settings", f"{name}={value}"]
    path = f"{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    done = call(*words, "--wheel-dir", folder, cwd=ROOT, PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment in which the wheel is installed."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = call(folder / "bin/pip", "install", "--no-deps", "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    packages = next((folder / "lib").glob("python3*/site-packages"))
    (packages / "torch.pth").write_text(f"{TORCH}\n{TESTS}\n")
    return folder / "bin"


@pytest.fixture
def packages(fresh: Path) -> Path:
    return next((fresh.parent / "lib").glob("python3*/site-packages"))


def test_it_holds_what_it_should(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "bin/cp-pool",
        "bin/cp-pool-worker",
        "share/cp-pool/matrices/quick.json",
        "py.typed",
        "pool.py",
        "_built_for.py",
    ):
        assert f"cp_pool/{name}" in names
    assert any(re.fullmatch(r"cp_pool/_worker\.cpython-\w+-.*\.so", name) for name in names)
    assert any(name.endswith("share/man/man1/cp-pool.1") for name in names)
    assert any(re.fullmatch(r"cp_pool/lib/libdw\.so\.\d+", name) for name in names)
    assert not [name for name in names if "libtorch" in name or "/test" in name or "__pycache__" in name]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-linux_" in wheel.name


def test_nothing_in_it_names_the_machine_that_built_it(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.read_bytes()[:4] == b"\x7fELF":
            dynamic = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
            paths = [
                path for line in re.findall(r"R(?:UN)?PATH\).*\[(.*)\]", dynamic) for path in line.split(":") if path
            ]
            assert all(path.startswith("$ORIGIN") for path in paths), (file, paths)


def test_its_programs_find_all_libraries(fresh: Path, packages: Path) -> None:
    package = packages / "cp_pool"
    for program in (package / "bin/cp-pool", package / "bin/cp-pool-worker", *package.glob("_worker*.so")):
        libraries = TORCH / "torch/lib"
        found = call("ldd", program, cwd=fresh, LD_LIBRARY_PATH=str(libraries)).stdout
        assert "not found" not in found
        for line in found.splitlines():
            if re.match(r"\s*lib(fmt|pugixml|dw|elf|z|lzma|bz2)\.", line):
                assert "/cp_pool/" in line, line


def test_its_programs_find_torch_beside_the_package(fresh: Path, packages: Path) -> None:
    """Links put torch where pip would have installed it."""
    links = [packages / name for name in ("torch", "nvidia")]
    try:
        for link in links:
            link.symlink_to(TORCH / link.name)
        worker = packages / "cp_pool/bin/cp-pool-worker"
        found = call("ldd", worker, cwd=fresh).stdout
        assert f"{packages}/cp_pool/bin/../../torch/lib/libtorch_cpu.so" in found
        assert "not found" not in found
        assert call(worker, "--help", cwd=fresh).returncode == 0
    finally:
        for link in links:
            link.unlink(missing_ok=True)


def test_the_command_runs_cases(fresh: Path, tmp_path: Path) -> None:
    done = call(
        fresh / "cp-pool", "run", "--matrix", "quick", "--filter", "quick/causal/*", "--device", "cpu", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ expanded = [1-9]\d* pass \+ 0 fail", done.stdout, re.MULTILINE)


def test_the_extension_runs_an_adapter(fresh: Path, tmp_path: Path) -> None:
    worker = f"{fresh}/python -m cp_pool.worker {ROOT}/python/tests/adapters/plain.py:plain"
    words: list[str | Path] = [fresh / "cp-pool", "run", "--filter", ID, "--device", "cpu", "--worker", worker]
    done = call(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("1 expanded = 1 pass")


def test_rerun_commands_name_the_command_of_the_environment(fresh: Path, tmp_path: Path) -> None:
    fault = f"wrong=out@1:inside:{ID}"
    words: list[str | Path] = [fresh / "cp-pool", "run", "--filter", ID, "--device", "cpu"]
    done = call(*words, cwd=tmp_path, CP_POOL_INJECT=fault)
    assert done.returncode == 100
    assert f"{fresh}/cp-pool run --matrix quick" in done.stdout


def test_pytest_knows_the_plugin_without_being_told(fresh: Path, tmp_path: Path) -> None:
    words = ["-m", "pytest", "--cp-pool-matrix", "quick", "--cp-pool-device", "cpu", "-k", "causal and p2p and bshd"]
    done = call(fresh / "python", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r" [1-9]\d* passed", done.stdout)


def test_the_pool_uses_the_packaged_program(fresh: Path, packages: Path, tmp_path: Path) -> None:
    code = (
        f"from cp_pool import Pool\nwith Pool(2, device='cpu') as pool: print(pool.binary, pool.submit('{ID}').outcome)"
    )
    done = call(fresh / "python", "-c", code, cwd=tmp_path)
    assert done.stdout == f"{packages}/cp_pool/bin/cp-pool pass\n", done.stderr


@pytest.mark.parametrize("version", ["2.10.1+cpu", None])
def test_another_torch_is_a_sentence(fresh: Path, tmp_path: Path, version: str | None) -> None:
    """Another torch comes before the real one in the path; or there is none."""
    if version is None:
        code = "import sys; sys.path = [p for p in sys.path if p != sys.argv[1]]; "
        words = "none"
    else:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/__init__.py").write_text("raise SystemError('imported')\n")
        (tmp_path / "torch/version.py").write_text(f"__version__ = '{version}'\n")
        code = "import sys; sys.path.insert(0, sys.argv[2]); "
        words = f"torch {version}"
    code += "sys.argv[:] = ['cp-pool', *sys.argv[3:]]; from cp_pool.programs import run_cp_pool; run_cp_pool()"
    arguments: list[str | Path] = [fresh / "python", "-c", code, TORCH, tmp_path]
    done = call(*arguments, "run", "--matrix", "quick", cwd=tmp_path)
    assert done.returncode == 96
    assert re.fullmatch(
        rf"cp-pool: error: this cp_pool was built for torch 2\.\d+ \(.*\), and .* has {re.escape(words)}: .*\n",
        done.stderr,
    )
    assert done.stdout == ""
    # Commands that need no ranks still work.
    assert call(*arguments, "list", "--count", cwd=tmp_path).stdout.splitlines()[-1].startswith("total ")
