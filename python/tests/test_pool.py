"""Tests cp_pool.Pool with the real program, mostly with the scripted worker."""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from cp_pool import CaseFailed, CaseRefused, CaseSkipped, Pool, PoolError, Result
from cp_pool.dump import dump_file_name
from cp_pool.result import Diagnosis

SIZES = {"seqlen_q": 8, "seqlen_kv": 8, "heads": 1, "kv_heads": 1, "head_dim_qk": 4, "head_dim_v": 4, "batch": 1}
ID = "quick/causal/p2p/cp2/bshd/fp32"

OpenPool = Callable[..., Pool]


@pytest.fixture
def open_pool(binary: Path, scripted: str, request: pytest.FixtureRequest) -> OpenPool:
    """Opens Pools of one rank on the scripted worker, and closes them."""

    def opened(world_size: int | None = 1, **options: Any) -> Pool:
        if not {"adapter", "worker"} & options.keys():
            options["worker"] = scripted
        # Ranks of this worker other than the first do not end by themselves, so they should be killed soon.
        options["arguments"] = ["--grace", "100ms", *options.get("arguments", [])]
        pool = Pool(world_size, **{"device": "cpu", **options})
        request.addfinalizer(pool.close)
        return pool

    return opened


def wait_until_gone(pid: int) -> None:
    """Waits until the process, which is no child of this one, has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([fd], [], [], 120)[0], f"process {pid} is still there"
    finally:
        os.close(fd)


def test_a_case_of_fields_is_run_with_the_ranks_of_the_pool(open_pool: OpenPool) -> None:
    result = open_pool().submit(model="pass", **SIZES)
    assert result.ok
    assert result.outcome == "pass"
    assert result.id.startswith("adhoc/pass/p2p/cp1/bshd/bf16/hash=")
    assert result.case["cp_size"] == 1
    assert result.duration_ms > 0
    assert result.timings_ms == {"forward": 1.5}
    assert [(check.tensor, check.rank, check.ok, check.ratio) for check in result.checks] == [("dq", 0, True, 0.5)]
    assert result.raise_for_outcome(skipped=True) is result


def test_cases_share_warm_ranks(open_pool: OpenPool) -> None:
    pool = open_pool()
    pools = [result.raw["pool"] for result in pool.map({"model": "pass", "seed": seed, **SIZES} for seed in range(5))]
    assert pools == [{"key": "cpu/1", "generation": 1}] * 5


def test_map_takes_a_case_when_it_is_asked_for_the_result(open_pool: OpenPool) -> None:
    taken = []

    def cases() -> Any:
        for seed in range(3):
            taken.append(seed)
            yield {"model": "pass", "seed": seed, **SIZES}

    results = open_pool().map(cases())
    assert taken == []
    assert next(results).case["seed"] == 0
    assert taken == [0]


def test_a_failure_says_all_that_a_person_needs(open_pool: OpenPool) -> None:
    result = open_pool().submit(id="mine", model="fail", **SIZES)
    assert not result.ok
    with pytest.raises(CaseFailed) as caught:
        result.raise_for_outcome()
    text = str(caught.value)
    lines = text.splitlines()
    assert lines[0] == "mine: fail: dq is wrong"
    assert lines[1].split() == ["tensor", "rank", "error", "bound", "ratio", "worst", "index"]
    assert lines[2].split() == ["dq", "0", "0.5", "0.25", "2", "[0,", "7,", "1]"]
    assert "rank 0 stderr:\n  | stderr of mine" in text
    assert lines[-1].startswith("rerun: printf ")
    assert caught.value.result is result


def test_a_failure_has_its_cause(open_pool: OpenPool) -> None:
    result = open_pool().submit(id="mine", model="diagnosed", **SIZES)
    assert result.diagnosis is not None
    assert (result.diagnosis.certainty, result.diagnosis.id) == ("likely", "no_mask")
    assert (result.diagnosis.explains, result.diagnosis.others) == (("dq",), ("whole_keys",))
    assert (
        "\ncause (likely): the mask is <missing>\\x1b[31m (explains dq within bounds); or: whole_keys\n"
        "  every query saw every key\nrank 0 stderr:" in result.failure_text()
    )
    without = open_pool(arguments=["--no-diagnosis"]).submit(id="mine", model="diagnosed", **SIZES)
    assert without.outcome == "fail"
    assert without.diagnosis is None


def test_a_cause_is_told_as_sure_as_it_is() -> None:
    found = {"certainty": "certain", "id": "no_mask", "cause": "the mask is missing"}
    assert Diagnosis.from_json(found).text() == "cause: the mask is missing"
    unknown = {"certainty": "unknown", "id": "unknown", "cause": "only dk is wrong", "evidence": ["dv is right"]}
    assert Diagnosis.from_json(unknown).text() == "cause: unknown: only dk is wrong\n  dv is right"


def test_the_rerun_command_reruns_the_case(open_pool: OpenPool) -> None:
    result = open_pool().submit(model="fail", **SIZES)
    again = subprocess.run(result.rerun + " --json", shell=True, capture_output=True, text=True, check=False)
    assert json.loads(again.stdout)["id"] == result.id
    assert json.loads(again.stdout)["outcome"] == "fail"


def test_the_rerun_command_of_an_id_is_short_and_reruns_it(open_pool: OpenPool, scripted: str) -> None:
    result = open_pool(2, timeout=30).submit(ID)
    assert f"submit {ID} --size small --worker" in result.rerun
    assert "--timeout 30000ms" in result.rerun
    again = subprocess.run(result.rerun + " --json", shell=True, capture_output=True, text=True, check=False)
    assert json.loads(again.stdout)["id"] == ID


def test_a_skip_raises_only_where_that_is_asked(open_pool: OpenPool) -> None:
    result = open_pool().submit(model="skip", **SIZES)
    assert result.skipped and not result.ok
    assert result.raise_for_outcome() is result
    with pytest.raises(CaseSkipped, match=r"^this worker skips it$"):
        result.raise_for_outcome(skipped=True)


def test_what_breaks_the_ranks_costs_one_case(open_pool: OpenPool) -> None:
    pool = open_pool(timeout=2)
    outcomes = [pool.submit(model=model, **SIZES).outcome for model in ("error", "crash", "hang", "pass")]
    assert outcomes == ["error", "crash", "timeout", "pass"]


def test_the_error_of_a_rank_is_shown_without_what_the_reason_says(open_pool: OpenPool) -> None:
    text = open_pool().submit(id="mine", model="error", **SIZES).failure_text()
    assert text.startswith("mine: error: rank 0 threw\nrank 0 error:\n  boom\n  at here\n")


def test_errors_can_be_pickled(open_pool: OpenPool) -> None:
    result = open_pool().submit(model="fail", **SIZES)
    copy = pickle.loads(pickle.dumps(CaseFailed(result)))
    assert isinstance(copy, CaseFailed)
    assert str(copy) == str(CaseFailed(result))
    assert copy.result == result
    lost = pickle.loads(pickle.dumps(PoolError("gone", 3, "why")))
    assert (str(lost), lost.exit_code, lost.stderr) == ("gone", 3, "why")


def test_ids_and_what_list_prints_are_cases(open_pool: OpenPool, binary: Path) -> None:
    pool = open_pool(2)
    assert pool.submit(ID).id == ID
    words = [str(binary), "list", "--json", "--filter", ID]
    listed = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    result = pool.submit(listed[0])
    assert result.id == ID
    assert result.case == listed[0]["case"]


def test_fields_stand_above_those_of_a_case_and_give_it_another_id(open_pool: OpenPool) -> None:
    result = open_pool(2).submit(ID, batch=1, seed=7)
    assert (result.case["batch"], result.case["seed"], result.case["causal"]) == (1, 7, True)
    assert result.id.startswith(ID + "/hash=")


def test_optional_cases_are_found_by_their_id(open_pool: OpenPool, binary: Path) -> None:
    words = [str(binary), "list", "--matrix", "te-flash", "--filter", "tag=cp4"]
    optional = subprocess.run(words, capture_output=True, check=True, text=True).stdout.splitlines()[0]
    assert open_pool(None).submit(optional).ok


def test_an_unknown_id_is_refused_with_a_suggestion(open_pool: OpenPool) -> None:
    pool = open_pool(2)
    for unknown in (ID + "x", "quik" + ID[5:]):
        with pytest.raises(CaseRefused) as caught:
            pool.submit(unknown)
        assert f"there is no file and no case '{unknown}'" in str(caught.value)
        assert ID in str(caught.value).replace(unknown, "")
    assert pool.submit(ID).ok


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"head": 1}, ["$.head", "heads"]),
        ({"layout": "bsdh"}, ["$.layout", "bsdh"]),
        ({"heads": 0}, ["$.heads"]),
        ({"seqlen_q": 7}, ["seqlen_q", "7"]),
        ({"heads": float("nan")}, ["a case is made of what JSON has"]),
        ({"heads": {1}}, ["a case is made of what JSON has"]),
        ({"case": {}, "heads": 1}, ["heads"]),
    ],
)
def test_what_is_no_case_is_refused_and_the_pool_goes_on(
    open_pool: OpenPool, case: dict[str, Any], words: list[str]
) -> None:
    pool = open_pool()
    with pytest.raises(CaseRefused) as caught:
        pool.submit(case if "case" in case else {**SIZES, **case})
    for word in words:
        assert word in str(caught.value)
    assert "<stdin>" not in str(caught.value).splitlines()[0]
    assert pool.submit(model="pass", **SIZES).ok


def test_a_case_of_another_world_size_is_refused(open_pool: OpenPool) -> None:
    pool = open_pool(1)
    with pytest.raises(ValueError, match="cp_size 2, but this Pool has 1 ranks"):
        pool.submit(ID)
    with pytest.raises(ValueError, match="cp_size 3, but this Pool has 1 ranks"):
        pool.submit(cp_size=3, **SIZES)
    with pytest.raises(ValueError, match="cp_size 1 in 2 groups, but this Pool has 1 ranks"):
        pool.submit(cp_size=1, group=2, **SIZES)
    assert open_pool(None).submit(ID).raw["pool"]["key"] == "cpu/2"


def test_a_pool_shares_its_ranks_among_the_groups_of_a_case(open_pool: OpenPool) -> None:
    result = open_pool(2).submit(group=2, **SIZES)
    assert (result.case["cp_size"], result.case["group"], result.raw["pool"]["key"]) == (1, 2, "cpu/2")
    listed = open_pool(2).submit(cp_size=1, group=2, group_ranks=[[1], [0]], **SIZES)
    assert (listed.case["group_ranks"], listed.raw["pool"]["key"]) == ([[1], [0]], "cpu/2")
    with pytest.raises(ValueError, match="but this Pool has 2 ranks"):
        open_pool(2).submit(cp_size=2, group=2, group_ranks=[[0, 1], [2]], **SIZES)


def test_a_closed_pool_says_so(open_pool: OpenPool) -> None:
    pool = open_pool()
    with pool as entered:
        assert entered is pool
    pool.close()
    with pytest.raises(PoolError, match="takes no more cases: it was closed"):
        pool.submit(model="pass", **SIZES)


def test_nothing_is_left_behind(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(2, events=tmp_path / "events", dump=True) as pool:
        assert pool.submit(model="pass", **{**SIZES, "seqlen_q": 16, "seqlen_kv": 16}).ok
        driver = pool._process.pid
        folder = pool._dump_folder
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    pids = [pid for event in events if event["type"] == "pool_spawned" for pid in event["pids"]]
    assert len(pids) == 2
    for pid in [driver, *pids]:
        assert not Path(f"/proc/{pid}").exists()
    assert folder is not None and not folder.exists()


def test_the_death_of_cp_pool_is_told_with_its_exit_code_and_stderr(open_pool: OpenPool) -> None:
    pool = open_pool(arguments=["--no-such-option"])
    with pytest.raises(PoolError, match=r"cp-pool has died: exit code 2: .*--no-such-option") as caught:
        pool.submit(model="pass", **SIZES)
    assert caught.value.exit_code == 2
    assert "--no-such-option" in caught.value.stderr
    with pytest.raises(PoolError, match="takes no more cases: cp-pool has died: exit code 2"):
        pool.submit(model="pass", **SIZES)


def test_cp_pool_may_be_killed_between_cases_and_during_one(open_pool: OpenPool, tmp_path: Path) -> None:
    idle = open_pool()
    assert idle.submit(model="pass", **SIZES).ok
    os.kill(idle._process.pid, signal.SIGKILL)
    with pytest.raises(PoolError, match=r"cp-pool has died: signal 9 \(SIGKILL\)") as caught:
        idle.submit(model="pass", **SIZES)
    assert caught.value.exit_code == -9

    fifo = tmp_path / "events"
    os.mkfifo(fifo)
    busy = open_pool(events=fifo)

    def kill_when_the_case_has_started() -> None:
        with fifo.open() as events:
            for line in events:
                if json.loads(line)["type"] == "case_started":
                    os.kill(busy._process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_the_case_has_started)
    killer.start()
    with pytest.raises(PoolError, match="SIGKILL"):
        busy.submit(model="hang", **SIZES)
    killer.join()


def test_a_program_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PoolError, match="binary: there is no program '/nowhere/cp-pool'"):
        Pool(1, binary="/nowhere/cp-pool")
    monkeypatch.setenv("CP_POOL_BINARY", "/nowhere/else")
    with pytest.raises(PoolError, match="CP_POOL_BINARY: there is no program '/nowhere/else'"):
        Pool(1)


def test_threads_may_share_a_pool(open_pool: OpenPool) -> None:
    pool = open_pool()
    answers: dict[str, Result] = {}

    def submit(name: str) -> None:
        for number in range(5):
            answers[f"{name}{number}"] = pool.submit(id=f"{name}{number}", model="pass", **SIZES)

    threads = [threading.Thread(target=submit, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20
    assert all(result.id == name and result.ok for name, result in answers.items())


def test_close_from_another_thread_cancels_the_running_case(open_pool: OpenPool, tmp_path: Path) -> None:
    fifo = tmp_path / "events"
    os.mkfifo(fifo)
    pool = open_pool(events=fifo)

    def close_when_the_case_has_started() -> None:
        with fifo.open() as events:
            for line in events:
                if json.loads(line)["type"] == "case_started":
                    closer = threading.Thread(target=pool.close)
                    closer.start()
        closer.join()

    watcher = threading.Thread(target=close_when_the_case_has_started)
    watcher.start()
    assert pool.submit(model="hang", **SIZES).outcome == "cancelled"
    watcher.join()
    with pytest.raises(PoolError, match="it was closed"):
        pool.submit(model="pass", **SIZES)


CHILD = """
import json, sys
from cp_pool import Pool
with Pool(1, worker=sys.argv[1], device="cpu", env={"CP_POOL_TEST_REQUESTS": sys.argv[2]}) as pool:
    print(pool._process.pid, flush=True)
    try:
        pool.submit(json.loads(sys.argv[3]))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        try:
            pool.submit(json.loads(sys.argv[3]))
        except Exception as error:
            print(error, flush=True)
        raise
"""


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_client_leaves_nothing(scripted: str, tmp_path: Path, kind: signal.Signals) -> None:
    fifo = tmp_path / "requests"
    os.mkfifo(fifo)
    case = json.dumps({"model": "hang", **SIZES})
    words = [sys.executable, "-c", CHILD, scripted, str(fifo), case]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        driver = int(client.stdout.readline())
        with fifo.open() as requests:
            assert json.loads(requests.readline())["op"] == "run"
        ranks = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
        client.send_signal(kind)
        said, error = client.communicate()
        if kind == signal.SIGINT:
            assert said == "interrupted\nthis Pool takes no more cases: a submit was interrupted, which ended it\n"
            assert error.rstrip().endswith("KeyboardInterrupt")
    assert len(ranks) == 1
    for pid in [driver, *map(int, ranks)]:
        wait_until_gone(pid)


def test_a_fork_neither_uses_nor_holds_the_pool(open_pool: OpenPool) -> None:
    pool = open_pool()
    assert pool.submit(model="pass", **SIZES).ok
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pool.submit(model="pass", **SIZES)
        except PoolError as error:
            os.write(write, str(error).encode())
        pool.close()
        os.write(write, b"\n")
        signal.pause()
    os.close(write)
    with os.fdopen(read) as said:
        assert said.readline() == f"this Pool belongs to process {os.getpid()}, of which this one is a fork\n"
        assert pool.submit(model="pass", **SIZES).ok
        pool.close()  # although the fork is still running
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_pool_that_nobody_closed_ends_with_its_process(scripted: str) -> None:
    code = (
        "import json, sys; from cp_pool import Pool; pool = Pool(1, worker=sys.argv[1], device='cpu');"
        "assert pool.submit(json.loads(sys.argv[2])).ok; print(pool._process.pid)"
    )
    words = [sys.executable, "-c", code, scripted, json.dumps({"model": "pass", **SIZES})]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


def test_the_environment_reaches_the_ranks(open_pool: OpenPool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    open_pool(env={"CP_POOL_TEST_MARK": str(mark)}).submit(model="pass", **SIZES)
    assert mark.exists()


def test_times_of_the_step(open_pool: OpenPool) -> None:
    pool = open_pool(perf={"warmup": 1, "iterations": 2}, env={"CP_POOL_TEST_STEP_MS": "2.5"})
    result = pool.submit(model="pass", **SIZES)
    assert result.perf is not None
    assert (result.perf.ms, result.perf.raw["iterations"]) == (2.5, 2)


def test_an_adapter_runs_in_this_interpreter_unless_another_is_named(open_pool: OpenPool) -> None:
    own = open_pool(adapter="mine.py", bound_factor=1.5, fork="off").command
    assert own[own.index("--adapter") :][:8] == [
        *("--adapter", "mine.py", "--device", "cpu"),
        *("--python", sys.executable, "--bound-factor", "1.5"),
    ]
    assert own[own.index("--fork") + 1] == "off"
    other = open_pool(adapter="mine.py", python="/opt/python").command
    assert other[other.index("--python") + 1] == "/opt/python"


def test_adapter_and_worker_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        Pool(1, adapter="mine.py", worker="mine")


@pytest.mark.parametrize(
    ("world_size", "error", "text"),
    [
        (0, ValueError, "world_size is 0"),
        (-2, ValueError, "world_size is -2"),
        ("2", TypeError, "world_size is a number of ranks, not '2'"),
        (True, TypeError, "world_size is a number of ranks, not True"),
        (2.0, TypeError, "world_size is a number of ranks, not 2.0"),
    ],
)
def test_a_number_of_ranks_that_is_none_is_refused(world_size: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        Pool(world_size)


def test_torch_is_not_imported_until_tensors_are_asked_for(scripted: str) -> None:
    code = (
        "import json, sys; from cp_pool import Pool\n"
        "with Pool(1, worker=sys.argv[1], device='cpu') as pool: pool.submit(json.loads(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules and 'pytest' not in sys.modules"
    )
    words = [sys.executable, "-c", code, scripted, json.dumps({"model": "pass", **SIZES})]
    subprocess.run(words, check=True)


def test_without_a_dump_there_are_no_tensors(open_pool: OpenPool) -> None:
    with pytest.raises(PoolError, match=r"Pool\(.., dump=True\)"):
        open_pool().submit(model="pass", **SIZES).tensors()
    with pytest.raises(PoolError, match="the worker wrote no tensors"):
        open_pool(dump=True).submit(model="pass", **SIZES).tensors()


def test_names_of_dumps_are_those_of_the_worker() -> None:
    assert dump_file_name("a/b") == "a__b.safetensors"
    long = dump_file_name("é" * 300)
    assert len(long.encode()) <= 200 + len(".safetensors")
    assert long.startswith("é" * 91)


class TestOnTheRealWorker:
    """Tests the tensors of cp-pool-worker."""

    CASE: ClassVar[dict[str, Any]] = {
        "seqlen_q": 16,
        "seqlen_kv": 16,
        "heads": 2,
        "kv_heads": 1,
        "head_dim_qk": 8,
        "head_dim_v": 8,
        "dtype": "fp32",
        "causal": True,
    }

    def test_tensors_are_those_of_the_case(self, binary: Path, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        for dump in (True, tmp_path / "dump"):
            with Pool(2, device="cpu", dump=dump) as pool:
                first = pool.submit(id="a" * 300, **self.CASE)
                assert first.ok, first
                tensors = first.tensors()
                assert tensors["q"].shape == (2, 16, 2, 8)
                assert {name: tensors[name].dtype for name in ("q", "lse", "cu_seqlens_q")} == {
                    "q": torch.float32,
                    "lse": torch.float32,
                    "cu_seqlens_q": torch.int32,
                }
                q, k, v = (tensors[name].transpose(1, 2).double() for name in "qkv")
                k, v = (part.repeat_interleave(2, dim=1) for part in (k, v))
                expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                assert torch.allclose(tensors["out"].transpose(1, 2).double(), expected, atol=1e-5)
                second = pool.submit(id="a" * 300, **{**self.CASE, "seed": 7})
                assert not torch.equal(second.tensors()["q"], tensors["q"])
                assert torch.equal(first.tensors()["q"], tensors["q"])
            if dump is True:
                with pytest.raises(PoolError, match="read them before the Pool is closed"):
                    second.tensors()
                continue
            with Pool(2, device="cpu", dump=dump) as later:
                later.submit(id="a" * 300, **self.CASE)
            with pytest.raises(PoolError, match="has been replaced since"):
                first.tensors()

    def test_a_wrong_answer_has_a_diagnosis_and_a_pass_has_none(self, binary: Path) -> None:
        with Pool(2, device="cpu", env={"CP_POOL_INJECT": "wrong=dv@1:inside:bad"}) as pool:
            bad = pool.submit(id="bad", **self.CASE)
            assert bad.outcome == "fail"
            assert bad.diagnosis is not None
            assert bad.diagnosis.cause in bad.failure_text()
            assert pool.submit(id="good", **self.CASE).raise_for_outcome().diagnosis is None

    def test_bf16_and_packed_tensors_are_read(self, binary: Path) -> None:
        torch = pytest.importorskip("torch")
        with Pool(2, device="cpu", dump=True) as pool:
            case = {**self.CASE, "dtype": "bf16", "layout": "thd", "pad_between_seqs": True, "seqlens": [5, 0]}
            tensors = pool.submit(case).raise_for_outcome(skipped=True).tensors()
            assert tensors["out"].dtype == torch.bfloat16
            assert tensors["cu_seqlens_q"].tolist() == [0, 5, 5]
            assert set(tensors) >= {"q", "k", "v", "dout", "out", "dq", "dk", "dv", "lse"}
