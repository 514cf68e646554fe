"""Tests the plugin in a real pytest with 40 cases, among them a skip, a wrong answer, a crash and a hang."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

SIZES = {"batch": 1, "seqlen_q": 8, "seqlen_kv": 8, "heads": 1, "kv_heads": 1, "head_dim_qk": 4, "head_dim_v": 4}
PASSES = {
    "dtype": ["fp32", "bf16", "fp16"],
    "layout": ["bshd", "sbhd", "thd"],
    "causal": [False, True],
    "max_logit": [False, True],
}
MATRIX = {
    "suite": "demo",
    "seed": 1,
    "defaults": {"cp_size": 1, **SIZES},
    "models": {
        "skip": {},
        "fail": {},
        "crash": {},
        "hang": {},
        "pass": {"axes": PASSES, "tags": ["essential"]},
    },
    "sizes": {"small": {}, "full": {}},
}
WHERE = "p2p/cp1/bshd/bf16"
FAIL, CRASH, HANG, SKIP = (f"demo/{model}/{WHERE}" for model in ("fail", "crash", "hang", "skip"))

Run = Callable[..., "Finished"]


class Finished:
    """A pytest that has ended."""

    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code = process.returncode
        self.out = process.stdout
        self.err = process.stderr

    @property
    def last_line(self) -> str:
        return re.sub(r" in [0-9.]+s.*", "", self.out.rstrip().splitlines()[-1]).strip("= ")

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


@pytest.fixture
def command(binary: Path, scripted: str, tmp_path: Path) -> list[str]:
    """The pytest command for the 40 cases, with a short deadline."""
    (tmp_path / "demo.json").write_text(json.dumps(MATRIX))
    words = [sys.executable, "-m", "pytest", "-p", "cp_pool.pytest_plugin", "--cp-pool-matrix", "./demo.json"]
    return [*words, "--cp-pool-worker", scripted, "--cp-pool-device", "cpu", "--cp-pool-timeout", "1000ms"]


@pytest.fixture
def run(command: list[str], tmp_path: Path) -> Run:
    def finished(*arguments: str, words: list[str] | None = None) -> Finished:
        # Without the variables that the running pytest has set.
        env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        env["COLUMNS"] = "200"  # wide, since the short summary cuts its lines
        process = subprocess.run(
            [*(words or command), *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        return Finished(process)

    return finished


def test_each_case_is_an_item_and_a_pool_that_breaks_costs_one(run: Run) -> None:
    done = run("-v", "-rs")
    assert done.last_line == "3 failed, 36 passed, 1 skipped"
    assert done.code == 1
    assert "collected 40 items" in done.out
    for case, outcome in ((SKIP, "SKIPPED (this worker skips it)"), (FAIL, "FAILED"), (CRASH, "FAILED")):
        assert f"\n{case} {outcome} " in done.out
    assert f"\ndemo/pass/{WHERE}/causal=true PASSED " in done.out
    assert "\nSKIPPED [1] demo: this worker skips it\n" in done.out


def test_a_failure_is_told_in_cp_pools_words(run: Run, scripted: str) -> None:
    done = run("-k", "fail")
    text = done.out.split("= FAILURES =")[1].split("= short test summary info =")[0].splitlines()[1:-1]
    assert text[0].strip("_ ") == FAIL
    assert text[1] == "fail: dq is wrong"
    assert text[2].split() == ["tensor", "rank", "error", "bound", "ratio", "worst", "index"]
    assert text[3].split() == ["dq", "0", "0.5", "0.25", "2", "[0,", "7,", "1]"]
    assert text[4:6] == ["rank 0 stderr:", f"  | stderr of {FAIL}"]
    assert text[6].startswith(f"rerun: {os.environ['CP_POOL_BINARY']} submit {FAIL} --matrix ./demo.json --size small ")
    assert len(text) == 7
    assert f"FAILED {FAIL} - fail: dq is wrong" in done.out


@pytest.mark.long
def test_tb_line_is_a_line(run: Run) -> None:
    done = run("-k", "fail or crash", "--tb=line", "-q")
    text = done.out.split("= FAILURES =")[1].split("= short test summary info =")[0].splitlines()[1:-1]
    assert text == [f"{FAIL}:0: fail: dq is wrong", f"{CRASH}:0: crash: rank 0 died: signal 9 (SIGKILL)"]


@pytest.mark.long
def test_the_command_of_a_failure_reruns_it(run: Run, tmp_path: Path) -> None:
    rerun = next(line for line in run("-k", "fail").lines if line.startswith("rerun: ")).removeprefix("rerun: ")
    again = subprocess.run(rerun, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 100
    assert f"FAIL     {FAIL}" in again.stdout or "1 fail" in again.stdout


def test_k_selects_by_words_of_the_id_and_tags(run: Run) -> None:
    assert run("-k", "bf16 and thd").last_line == "4 passed, 36 deselected"
    assert run("-k", "essential and not fp32 and not bf16").last_line == "12 passed, 28 deselected"


@pytest.mark.long
def test_filters_are_those_of_cp_pool(run: Run) -> None:
    done = run("--cp-pool-filter", "model=pass & dtype=fp16", "--cp-pool-filter", "model=skip")
    assert done.last_line == "12 passed, 1 skipped"


def test_x_stops_at_the_first_failure(run: Run) -> None:
    done = run("-x", "-v")
    assert done.last_line.startswith("1 failed, 1 skipped")
    assert CRASH not in done.out


def test_lf_runs_what_failed(run: Run) -> None:
    assert run().code == 1
    assert run("--lf").last_line == "3 failed, 37 deselected"
    assert run("--lf", "-k", "fail").last_line == "1 failed, 39 deselected"


@pytest.mark.long
def test_lf_runs_cases_beside_tests_that_failed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_a(): assert False\ndef test_b(): pass\n")
    assert run("test_own.py").last_line == "4 failed, 37 passed, 1 skipped"
    assert run("test_own.py", "--lf").last_line.startswith("4 failed")


def test_node_ids_select_cases_and_unknown_ones_are_refused(run: Run) -> None:
    done = run(FAIL, SKIP, "-v", "--tb=no")
    assert done.last_line == "1 failed, 1 skipped"
    refused = run("demo/nope")
    assert refused.code == 4
    assert "file or directory not found, and no case of ./demo.json: demo/nope" in refused.err


@pytest.mark.long
def test_tests_of_the_folder_run_only_where_they_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_it(): pass\n")
    assert run("-k", "skip or test_it").last_line == "1 skipped, 39 deselected"
    assert run("-k", "skip or test_it", "test_own.py").last_line == "1 passed, 1 skipped, 39 deselected"


def test_collect_only_and_deselected_cases_start_no_pool(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("CP_POOL_TEST_MARK", str(mark))
    listed = run("--collect-only", "-q")
    assert FAIL in listed.lines
    assert listed.last_line == "40 tests collected"
    assert run("-k", "nothing").code == 5
    assert not mark.exists()
    run("-k", "fail")
    assert mark.exists()


def outcomes_of(report: Path) -> dict[str, str]:
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        assert case.get("classname") == "demo"
        name = case.get("name")
        assert name is not None
        found[name] = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "pass")
    return found


@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "2"), marks=pytest.mark.long)], ids=["alone", "xdist"])
def test_junit_names_the_cases(run: Run, tmp_path: Path, workers: tuple[str, ...]) -> None:
    run("--junitxml", "junit.xml", *workers)
    found = outcomes_of(tmp_path / "junit.xml")
    assert Counter(found.values()) == {"pass": 36, "failure": 3, "skipped": 1}
    assert (found[FAIL], found[CRASH], found[HANG], found[SKIP]) == ("failure", "failure", "failure", "skipped")
    case = next(one for one in ElementTree.parse(tmp_path / "junit.xml").iter("testcase") if one.get("name") == FAIL)
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "fail: dq is wrong"
    assert failure.text is not None and "worst index" in failure.text
    properties = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert properties["cp_pool_outcome"] == "fail"
    assert properties["world_size"] == "1"


@pytest.mark.long
def test_each_process_of_xdist_has_a_pool_of_its_own(run: Run, tmp_path: Path) -> None:
    done = run("-n", "2", "-v")
    assert done.last_line == "3 failed, 36 passed, 1 skipped"
    assert f"FAILED {FAIL} - fail: dq is wrong" in done.out
    assert {line[:5] for line in done.lines if " PASSED demo/pass" in line} == {"[gw0]", "[gw1]"}
    assert run("-n", "2", "-k", "fail or thd").last_line == "1 failed, 12 passed"
    assert run("-n", "2", FAIL, SKIP).last_line == "1 failed, 1 skipped"


@pytest.mark.long
def test_durations_are_those_of_the_cases(run: Run) -> None:
    done = run("--durations", "1", "-k", "hang or thd")
    slowest = done.out.split("slowest 1 durations")[1].splitlines()[1]
    seconds, when, name = slowest.split()
    assert (when, name) == ("call", HANG)
    assert float(seconds.rstrip("s")) >= 0.5


def test_a_pool_that_does_not_start_is_an_error_and_no_failure(run: Run, command: list[str], tmp_path: Path) -> None:
    words = [*command]
    words[words.index("--cp-pool-worker") + 1] = "false"
    done = run("-k", "fail or skip", "--junitxml", "junit.xml", words=words)
    assert done.last_line == "38 deselected, 2 errors"
    assert "= ERRORS =" in done.out
    assert f"ERROR {FAIL} - infra: " in done.out
    assert Counter(outcomes_of(tmp_path / "junit.xml").values()) == {"error": 2}


@pytest.mark.long
def test_a_command_line_that_cp_pool_refuses_is_told_once(run: Run) -> None:
    done = run("-k", "fail or skip", "--cp-pool-timeout", "banana")
    assert done.last_line == "38 deselected, 2 errors"
    assert done.out.count("cp-pool has died: exit code 2: --timeout: 'banana' is not a duration") == 2  # 1 in short
    assert done.out.count("cp-pool did not start, as said with the first case") == 2


def test_a_cp_pool_that_dies_costs_one_case(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import os, signal\n"
        "killed = []\n"
        "def pytest_runtest_teardown(item):\n"
        "    if not killed:\n"
        "        killed.extend(open(f'/proc/self/task/{os.getpid()}/children').read().split())\n"
        "        os.kill(int(killed[0]), signal.SIGKILL)\n"
    )
    done = run("-k", "fp32 and thd", "-v")
    assert done.last_line == "3 passed, 36 deselected, 1 error"
    assert "\ncp-pool has died: signal 9 (SIGKILL)\n" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cp-pool-filter", "banana=1"], "bad filter: unknown field 'banana'"),
        *(
            pytest.param(*row, marks=pytest.mark.long)
            for row in (
                (["--cp-pool-filter", "model=nope"], "the filter 'model=nope' selects no case"),
                (["--cp-pool-matrix", "quik"], "there is no matrix 'quik'"),
                (["--cp-pool-size", "huge"], "huge"),
                (["--cp-pool-adapter", "mine.py"], "--cp-pool-adapter and --cp-pool-worker exclude each other"),
            )
        ),
    ],
)
def test_wrong_options_are_usage_errors(run: Run, arguments: list[str], words: str) -> None:
    done = run(*arguments)
    assert done.code == 4
    assert words in done.err
    assert "Traceback" not in done.out + done.err


@pytest.mark.long
def test_xfail_and_fixtures_of_a_conftest_work(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if '/fail/' in item.nodeid:\n"
        "            item.add_marker(pytest.mark.xfail(reason='known'))\n"
    )
    assert run("-k", "fail or thd").last_line == "12 passed, 27 deselected, 1 xfailed"


def test_ctrl_c_ends_pytest_and_cp_pool(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "requests"
    os.mkfifo(fifo)
    monkeypatch.setenv("CP_POOL_TEST_REQUESTS", str(fifo))
    command[command.index("--cp-pool-timeout") + 1] = "1h"
    words = [*command, "-k", "hang"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        with fifo.open() as requests:
            assert json.loads(requests.readline())["op"] == "run"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 2
    assert "KeyboardInterrupt" in out
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()


SUITE = """
import pytest

SIZES = dict(batch=1, seqlen_q=8, seqlen_kv=8, heads=1, kv_heads=1, head_dim_qk=4, head_dim_v=4, cp_size=1)

@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("model", ["pass", "fail", "skip", "crash"])
def test_model(cp_pool, model, dtype):
    if dtype == "fp16" and model == "crash":
        pytest.skip("not in fp16")
    cp_pool.check(model=model, dtype=dtype, **SIZES)

def test_result(cp_pool):
    result = cp_pool.submit(model="fail", **SIZES)
    assert result.outcome == "fail"
    assert result.raw["pool"]["generation"] == 2  # the crash before it cost the first

def test_by_id(cp_pool):
    assert cp_pool.check("demo/pass/p2p/cp1/bshd/bf16/causal=true").ok

def test_wrong_field(cp_pool):
    cp_pool.check(head=1, **SIZES)
"""


def test_the_fixture_submits_cases_of_a_suite_of_ones_own(run: Run, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = run("test_suite.py", "-rs", "--deselect", "demo")
    assert done.last_line.startswith("4 failed, 4 passed, 3 skipped")
    assert "this worker skips it" in done.out
    assert ": not in fp16" in done.out
    failure = done.out.split("_ test_model[fail-bf16] _")[1].split("\n____")[0]
    assert ">       cp_pool.check(model=model, dtype=dtype, **SIZES)\n" in failure
    assert re.search(r"^E +cp_pool\.CaseFailed: adhoc/fail/.*: fail: dq is wrong$", failure, re.MULTILINE)
    assert re.search(r"^E +dq +0 +0\.5 +0\.25 +2 ", failure, re.MULTILINE)
    assert re.search(r"^E +rerun: printf ", failure, re.MULTILINE)
    assert "pytest_plugin.py" not in failure and "result.py" not in failure
    refusal = done.out.split("_ test_wrong_field _")[1]
    assert "unknown key 'head'" in refusal or "$.head" in refusal


@pytest.mark.long
def test_the_fixture_needs_no_matrix(run: Run, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    at = command.index("--cp-pool-matrix")
    done = run("-k", "test_model and pass", words=command[:at] + command[at + 2 :])
    assert done.last_line == "2 passed, 9 deselected"


@pytest.mark.long
class TestOnTheRealWorker:
    """Runs 40 cases of quick on cp-pool-worker, with injected faults in some ranks."""

    def test_faults_cost_their_cases(self, run: Run, binary: Path, tmp_path: Path) -> None:
        listed = subprocess.run(
            [binary, "list", "--json", "--filter", "world_size=2"], capture_output=True, check=True
        ).stdout
        ids = [one["id"] for one in json.loads(listed)][:40]
        assert len(ids) == 40
        wrong, crash, hang = ids[5], ids[15], ids[25]
        worker = (
            f"{binary.parent / 'cp-pool-worker'} --inject wrong=out@1:inside:{wrong} "
            f"--inject sigsegv@1:inside:{crash} --inject hang@0:inside:{hang}"
        )
        words = [sys.executable, "-m", "pytest", "-p", "cp_pool.pytest_plugin", "--cp-pool-matrix", "quick"]
        words += ["--cp-pool-device", "cpu", "--cp-pool-worker", worker, "--cp-pool-timeout", "10s"]
        done = run("-q", *ids, "--junitxml", "junit.xml", words=words)
        assert re.fullmatch(r"3 failed, \d+ passed(, \d+ skipped)?", done.last_line), done.out
        assert f"FAILED {wrong} - fail: " in done.out
        assert f"FAILED {crash} - crash: " in done.out
        assert f"FAILED {hang} - timeout: " in done.out
        assert re.search(r"^  out +1 +\S+ +\S+ +\S+ +\[", done.out, re.MULTILINE)
        assert "SIGSEGV" in done.out
        properties = ElementTree.parse(tmp_path / "junit.xml").iter("property")
        assert sum(one.get("name") == "cp_pool_outcome" for one in properties) == 40


@pytest.mark.long
class TestOnAnAdapter:
    """Runs 40 cases on an adapter in Python, which does what the model of a case says."""

    SIZES: ClassVar[dict[str, int]] = {
        **SIZES,
        "heads": 2,
        "kv_heads": 2,
        "seqlen_q": 16,
        "seqlen_kv": 16,
        "cp_size": 2,
    }
    PASSES: ClassVar[dict[str, list[object]]] = {
        "dtype": ["fp32", "bf16", "fp16"],
        "layout": ["bshd", "sbhd", "thd"],
        "causal": [False, True],
        "training": [True, False],
    }
    MATRIX: ClassVar[dict[str, object]] = {
        "suite": "mine",
        "seed": 1,
        "defaults": SIZES,
        "models": {"throw.1": {}, "wrong.1": {}, "segv.1": {}, "sleep.0": {}, "ok": {"axes": PASSES}},
        "sizes": {"small": {}},
    }

    def test_its_faults_cost_their_cases(self, run: Run, binary: Path, tmp_path: Path) -> None:
        known = subprocess.run([binary, "run", "--help"], capture_output=True, text=True, check=True).stdout
        if "--adapter" not in known:
            pytest.skip("this cp-pool has no --adapter")
        (tmp_path / "mine.json").write_text(json.dumps(self.MATRIX))
        words = [sys.executable, "-m", "pytest", "-p", "cp_pool.pytest_plugin", "--cp-pool-matrix", "./mine.json"]
        words += ["--cp-pool-adapter", f"{Path(__file__).parent / 'adapters/faults.py'}:faulty"]
        words += ["--cp-pool-device", "cpu", "--cp-pool-timeout", "20s", "-v"]
        done = run(words=words)
        assert done.last_line == "4 failed, 36 passed", done.out
        place = "p2p/cp2/bshd/bf16"
        for model, outcome in (("throw.1", "error"), ("wrong.1", "fail"), ("segv.1", "crash"), ("sleep.0", "timeout")):
            assert f"FAILED mine/{model}/{place} - {outcome}: " in done.out
        thrown = done.out.split(f"_ mine/throw.1/{place} _")[1].split("\n____")[0]
        assert re.search(r'File ".*/faults.py", line \d+, in helper_that_throws', thrown), thrown
        assert "cp_pool/runner.py" not in thrown
