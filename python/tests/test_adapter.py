"""Tests what an adapter declares, how it is found and what it would skip; and adapters on real ranks."""

from __future__ import annotations

import json
import linecache
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from adapter_runs import BINARY, SMALL, TRIES_TO_RECOVER, Run, case, environment, run_cases, worker_command
from torch._C._distributed_c10d import HashStore

from cp_pool import Skip, adapter, runner, shard
from cp_pool.adapter import FEATURES, Adapter, DeclarationError
from cp_pool.context import CaseView
from cp_pool.errors import Failure, chain_of, one_line, place_of_frame, place_of_wait, says_peer_is_gone, user_traceback
from cp_pool.loading import LoadError, load
from cp_pool.runner import Runner
from cp_pool.step import copy_of


def run(q: Any, k: Any, v: Any, case: Any, ctx: Any) -> None:
    return None


class Object:
    def forward(self, q: Any, k: Any, v: Any, case: Any, ctx: Any) -> None:
        return None


def declared(target: Any = run, **arguments: Any) -> Adapter:
    made = adapter(**arguments)(target)
    found: Adapter = made.__cp_pool_adapter__
    return found


def view(**fields: Any) -> CaseView:
    return CaseView({**SMALL, **fields})


# --- Declarations -----------------------------------------------------------------------------------------------------


def test_the_package_needs_no_torch() -> None:
    code = "import sys, cp_pool, cp_pool.loading, cp_pool.context; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0


def test_a_decorated_function_stays_what_it_was() -> None:
    assert adapter(comm=["p2p"])(run) is run
    assert adapter(run) is run


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"comm": ["ring"]}, "comm has 'ring', which is none of p2p, all_gather, a2a, a2a+p2p"),
        ({"comm": "p2p"}, "comm is a list, as comm=['p2p']"),
        ({"features": ["gqq"]}, "features has 'gqq'"),
        ({"padding": "inf"}, "padding='inf' is none of garbage, nan, zeros, absent"),
        ({"head_order": "mixed"}, "head_order='mixed' is none of"),
        ({"shard": "dual_chunk"}, "shard='dual_chunk' is neither a convention of cp_pool.shard"),
        ({"shard": (shard.dual_chunk, 3)}, "shard=3 is neither a convention of cp_pool.shard"),
        ({"shard": (shard.dual_chunk,)}, "has 1 rules: a pair has one for q and one for k and v"),
        ({"bound_factor": 0.5}, "bound_factor=0.5 would narrow the bounds"),
        ({"refuses": "no backend"}, "refuses='no backend' is no list of pairs, as refuses=[(ValueError,"),
        ({"refuses": (ValueError, "no backend")}, "refuses has <class 'ValueError'>, and each entry is an exception"),
        ({"refuses": [("ValueError", "no")]}, "refuses has 'ValueError', which is no type of exceptions"),
        ({"refuses": [((ValueError, KeyboardInterrupt), "no")]}, "KeyboardInterrupt'>, which is no type of exceptions"),
        ({"refuses": [((), "no")]}, "refuses has an empty tuple of exception types"),
        ({"refuses": [(ValueError, 3)]}, "refuses has 3, which is neither a text nor a regular expression"),
        ({"refuses": [(ValueError, re.compile(b"no"))]}, "which is neither a text nor a regular expression"),
        ({"refuses": [(ValueError, "")]}, "which every message matches, so that any ValueError would be a skip"),
        ({"refuses": [(ValueError, re.compile("x*"))]}, "which every message matches"),
    ],
)
def test_a_declaration_of_what_does_not_exist_is_refused(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError) as error:
        declared(**arguments)
    assert text in str(error.value)


def test_a_function_with_other_parameters_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"cannot be called as <lambda>\(q, k, v, case, ctx\)"):
        adapter(comm=["p2p"])(lambda q, k, v: q)
    with pytest.raises(DeclarationError, match="no method forward"):
        adapter(comm=["p2p"])(dict)


@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        ({"causal": True}, "causal"),
        ({"causal": False, "window": [4, 0]}, "window"),
        ({"causal": False, "chunk": 8}, "chunk"),
        ({"causal": False, "mask": [[0, 8, 0, 8, "causal"]]}, "mask"),
        ({"causal": False, "softcap": 2}, "softcap"),
        ({"causal": False, "dtype": "bf16", "fp8": {"scaling": "current"}}, "fp8"),
        ({"causal": False, "heads": 4}, "gqa"),
        ({"causal": False, "comm": "a2a", "heads": 3, "kv_heads": 3}, "uneven_heads"),
        ({"causal": False, "head_dim_v": 4}, "mla"),
        ({"causal": False, "bias": "1hss"}, "bias"),
        ({"causal": False, "softmax": "off_by_one"}, "off_by_one"),
        ({"causal": False, "softmax": "learnable"}, "learnable"),
        ({"causal": False, "max_logit": True}, "max_logit"),
        ({"causal": False, "pad_between_seqs": True}, "padded_batch"),
        ({"causal": False, "seqlen_kv": 32}, "unequal"),
        ({"causal": False, "replicated": 4}, "replicated"),
        ({"causal": False, "all_queries": True}, "all_queries"),
        ({"causal": False, "deterministic": True}, "deterministic"),
        ({"causal": False, "comm": "a2a+p2p", "cp_size": 8, "inner": 4, "heads": 4, "kv_heads": 4}, "inner"),
        ({"causal": False, "group": 2}, "group"),
    ],
)
def test_a_feature_that_is_not_declared_is_a_skip(fields: dict[str, Any], feature: str) -> None:
    others = [name for name in FEATURES if name != feature]
    reason = declared(features=others).skip_reason(view(**fields), "cpu")
    assert reason.endswith(f"and the adapter run does not declare the feature {feature!r}")
    assert declared(features=list(FEATURES)).skip_reason(view(**fields), "cpu") == ""


def test_what_is_not_declared_is_a_skip() -> None:
    every = {"features": list(FEATURES)}
    assert "does not declare p2p in comm=['a2a']" in declared(comm=["a2a"], **every).skip_reason(view(), "cpu")
    assert "does not declare bshd in layouts=" in declared(layouts=["thd"], **every).skip_reason(view(), "cpu")
    assert "does not declare fp32 in dtypes=" in declared(dtypes=["bf16"], **every).skip_reason(view(), "cpu")
    assert "does not declare cuda in devices=" in declared(devices=["cpu"], **every).skip_reason(view(), "cuda")
    assert "max_ranks=2" in declared(max_ranks=2, **every).skip_reason(view(cp_size=4), "cpu")
    assert "has no backward" in declared(Object, **every).skip_reason(view(), "cpu")
    assert declared(Object, **every).skip_reason(view(training=False), "cpu") == ""


def test_a_refusal_is_an_exception_of_a_declared_type_with_declared_words() -> None:
    made = declared(refuses=[(ValueError, "no backend (at all)"), ((KeyError, OSError), re.compile(r"head_dim \d+"))])
    assert made.is_refusal(ValueError("there is no backend (at all) for it"))
    assert made.is_refusal(UnicodeError("no backend (at all)"))  # a ValueError
    assert made.is_refusal(KeyError("head_dim 96"))
    assert not made.is_refusal(ValueError("no backend"))
    assert not made.is_refusal(ValueError("head_dim 96"))
    assert not made.is_refusal(TypeError("no backend (at all)"))
    assert made.declaration()["refuses"] == [
        ["ValueError", "no backend (at all)"],
        ["KeyError, OSError", r"head_dim \d+"],
    ]
    assert not declared().is_refusal(ValueError("no backend"))


def test_bits_are_promised_on_cpus_unless_the_adapter_says_otherwise() -> None:
    promised = {
        said: [declared(repeats_bits=said).promises_bits(on) for on in ("cpu", "cuda")] for said in (True, False)
    }
    assert promised == {True: [True, True], False: [False, False]}
    assert [declared().promises_bits(on) for on in ("cpu", "cuda")] == [True, False]
    assert declared().declaration()["repeats_bits"] is None


def test_conventions_are_values() -> None:
    assert shard.striped == shard.striped_by(1)
    assert str(shard.striped_by(128)) == "striped:128"
    assert [str(shard.paged()), str(shard.paged(16))] == ["paged", "paged:16"]
    assert str(shard.dual_chunk_ulysses(ring=2)) == "dual_chunk_ulysses:2"
    assert str(shard.dual_chunk_ulysses(ring=2, ulysses_inner=False)) == "dual_chunk_ulysses:2:outer"
    with pytest.raises(ValueError, match="at least one row"):
        shard.striped_by(0)
    with pytest.raises(ValueError, match="at least one row"):
        shard.paged(0)


def test_a_case_has_its_fields_as_attributes() -> None:
    c = view(window=[8, 0], seqlens=[4, 0], head_dim_qk=16)
    assert (c.window, c.seqlens, c.scale, c.training, c.bias) == ((8, 0), (4, 0), 0.25, True, None)
    with pytest.raises(AttributeError):
        c.causal = False


# --- Loading ----------------------------------------------------------------------------------------------------------


def test_an_adapter_is_found_by_file_and_by_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(
        "from cp_pool import adapter\n@adapter(comm=['p2p'])\ndef ring(q, k, v, case, ctx): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load("some_package/mine.py").name == "ring"
    assert load("some_package/mine.py:ring").name == "ring"
    assert load("some_package.mine:ring").comm == ("p2p",)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("def f(:\n", "", "bad.py:1: SyntaxError: invalid syntax"),
        ("import no_such_module\n", "", "its import raised ModuleNotFoundError: No module named 'no_such_module'"),
        ("import sys\nsys.exit(3)\n", "", "its import raised SystemExit: 3"),
        ("x = 1\n", "", "nothing in it has the decorator @cp_pool.adapter"),
        ("x = 1\n", ":f", "it has no 'f'; its adapters: none"),
        ("def f(q, k, v, case, ctx): ...\n", ":f", "it has not the decorator @cp_pool.adapter"),
        (
            "from cp_pool import adapter\n@adapter\ndef f(q, k, v, case, ctx): ...\n"
            "@adapter\ndef g(q, k, v, case, ctx): ...\n",
            "",
            "it has several adapters: choose one",
        ),
    ],
)
def test_an_adapter_that_cannot_be_loaded_says_why(tmp_path: Path, text: str, name: str, message: str) -> None:
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(LoadError) as error:
        load(f"{path}{name}")
    assert message in str(error.value)


def test_a_place_that_does_not_exist_says_so(tmp_path: Path) -> None:
    for spec, text in (
        (str(tmp_path / "none.py"), "there is no such file"),
        ("nothing", "neither FILE.py, FILE.py:NAME nor package.module:NAME"),
        ("no_such_package.mine:f", "No module named"),
    ):
        with pytest.raises(LoadError, match=text):
            load(spec)


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_an_exception_that_says_that_a_peer_is_gone_is_known() -> None:
    gone = RuntimeError("[/pytorch/third_party/gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:53939")
    assert says_peer_is_gone(gone)
    assert says_peer_is_gone(ConnectionResetError())
    wrapped = ValueError("the ring failed")
    wrapped.__cause__ = gone
    assert says_peer_is_gone(wrapped)
    assert not says_peer_is_gone(ValueError("connection closed by peer"))
    assert not says_peer_is_gone(RuntimeError("shape '[2]' is invalid"))


def test_an_error_is_named_in_one_line() -> None:
    assert one_line(ValueError("first\nsecond")) == "ValueError: first"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert one_line(Skip("no")) == "cp_pool.adapter.Skip: no"


def test_a_traceback_keeps_causes() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        text = user_traceback(error)
    assert "KeyError: 'inner'" in text
    assert "direct cause" in text
    assert text.endswith("ValueError: outer")


def test_a_wait_is_named_by_the_adapters_line_not_by_a_line_of_pythons_library() -> None:
    with pytest.raises(ValueError) as failure:
        json.loads("{")  # raised in json/decoder.py
    wait = place_of_wait([failure.value])
    assert wait.place.startswith("loads of test_a_wait_is_named_by_"), wait
    assert "(test_adapter.py:" in wait.place
    assert wait.collective == ""


def test_a_stack_ends_where_code_waits_not_where_the_stack_is_taken() -> None:
    with pytest.raises(AttributeError) as failure:
        linecache.getline(5, 1)  # type: ignore[arg-type]
    wait = place_of_wait([failure.value])
    assert wait.place.startswith("test_a_stack_ends_where_code_waits"), wait
    assert "linecache.getline(5, 1)" in wait.stack
    assert "in getline\n" not in wait.stack


def test_a_wait_that_ends_while_torch_logs_an_error_is_that_in_the_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    def freed(*_: Any) -> None:
        raise InterruptedError

    for logs in ("_c10d_logger.handle", "dist.is_initialized"):
        with monkeypatch.context() as patches, pytest.raises(InterruptedError) as failure:
            patches.setattr("torch.distributed.c10d_logger._c10d_logger.level", logging.DEBUG)
            patches.setattr(f"torch.distributed.c10d_logger.{logs}", freed)
            torch.distributed.all_gather([], torch.ones(1))
        wait = place_of_wait(chain_of(failure.value))
        assert wait.collective == "all_gather", wait
        assert wait.place.startswith("all_gather of test_a_wait_that_ends"), wait


def test_a_wait_in_a_function_of_torch_distributed_is_a_collective() -> None:
    with pytest.raises(ValueError) as failure:
        torch.distributed.all_gather([], torch.ones(1))  # there is no process group
    wait = place_of_wait([failure.value])
    assert wait.collective == "all_gather"
    assert wait.place.startswith("all_gather of test_a_wait_in_a_function")


def test_a_signal_that_comes_while_the_stack_is_taken_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class TimedOut:
        def freed(self) -> int:
            return 2

        def watch_group_operations(self) -> None:
            pass

        def first_group_operation(self) -> str:
            return ""

    before = signal.getsignal(signal.SIGUSR1)
    runner = Runner(declared(), TimedOut(), signal.SIGUSR1)
    later_signals = [signal.SIGUSR1]

    def takes_long(frame: Any) -> str:
        while later_signals:
            signal.raise_signal(later_signals.pop())
        return place_of_frame(frame)

    def waits() -> None:
        signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr("cp_pool.runner.place_of_frame", takes_long)
    try:
        with pytest.raises(Failure) as failure:
            runner.call(waits)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert failure.value.kind == "timeout"
    assert "still in waits (test_adapter.py:" in failure.value.summary
    assert "takes_long" not in failure.value.text


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyError("no text today")


def test_a_failure_keeps_text_that_cpp_does_not_take() -> None:
    failure = Failure("exception", "no file b\udcff\0.bin", "a \udcff\0 traceback")
    assert failure.summary == "no file b\\udcff\\x00.bin"
    assert failure.text == "a \\udcff\\x00 traceback"
    assert one_line(Unspeakable()) == "test_adapter.Unspeakable: <exception str() failed>"
    assert not says_peer_is_gone(Unspeakable())


# --- The command line of the worker -----------------------------------------------------------------------------------


def worker(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cp_pool.worker", *arguments]
    return subprocess.run(command, input=stdin, env=environment(), capture_output=True, text=True, check=False)


def test_the_worker_tells_what_an_adapter_declares_and_would_skip(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from cp_pool import adapter\nprint('chatter')\n"
        "@adapter(comm=['p2p'], features=['causal'], preload=['einops'])\ndef ring(q, k, v, case, ctx): ...\n"
    )
    told = worker(str(path), "--declare")
    assert json.loads(told.stdout)["preload"] == ["einops"]
    assert "chatter" in told.stderr
    lines = "".join(json.dumps(c) + "\n" for c in (view().fields, view(comm="a2a").fields))
    told = worker(str(path), "--explain-skips", stdin=lines)
    assert [json.loads(line)["skip"] for line in told.stdout.splitlines()] == [
        "",
        "the adapter ring does not declare a2a in comm=['p2p']",
    ]


def test_the_worker_tells_how_much_each_rank_would_compute(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from cp_pool import adapter, shard\n"
        "@adapter(features=['causal'], shard=shard.contiguous)\ndef blocks(q, k, v, case, ctx): ...\n"
        "def cut(lengths, ranks): return [[0, *range(2, sum(lengths))], [1]]\n"
        "@adapter(features=['causal'], layouts=['thd'], shard=cut)\ndef listed(q, k, v, case, ctx): ...\n"
    )
    one = {"batch": 1, "heads": 2, "kv_heads": 2, "causal": True}
    plain = view(**one, seqlen_q=16, seqlen_kv=16).fields
    packed = view(**one, layout="thd", seqlens=[16]).fields
    lines = "".join(json.dumps({"case": c, "pairs": True}) + "\n" for c in (plain, packed))
    told = [json.loads(line) for line in worker(f"{path}:blocks", "--explain-skips", stdin=lines).stdout.splitlines()]
    assert told == [{"skip": "", "pairs": [2 * 36, 2 * 100]}] * 2
    told = [json.loads(line) for line in worker(f"{path}:listed", "--explain-skips", stdin=lines).stdout.splitlines()]
    assert told[0].keys() == {"skip"}
    assert told[1]["pairs"] == [2 * 134, 2 * 2]


@pytest.mark.parametrize(
    ("fields", "uneven"),
    [
        ({"comm": "p2p", "heads": 3, "kv_heads": 1}, False),
        ({"comm": "a2a", "heads": 8, "kv_heads": 4}, False),
        ({"comm": "a2a", "heads": 8, "kv_heads": 2}, True),
        ({"comm": "a2a", "heads": 6, "kv_heads": 6}, True),
        ({"comm": "a2a+p2p", "heads": 6, "kv_heads": 6}, False),
        ({"comm": "a2a+p2p", "heads": 6, "kv_heads": 3}, True),
        ({"comm": "a2a+p2p", "inner": 4, "heads": 6, "kv_heads": 6}, True),
    ],
)
def test_heads_that_ranks_cannot_split_evenly_are_a_feature(fields: dict[str, Any], uneven: bool) -> None:
    assert FEATURES["uneven_heads"][1](view(cp_size=4, **fields)) is uneven


def test_lengths_that_a_convention_does_not_divide_are_told_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from cp_pool import adapter, shard\n"
        "@adapter(features=['causal'], shard=shard.striped_by(5))\ndef stripes(q, k, v, case, ctx): ...\n"
        "@adapter(features=['causal'], padding='absent')\ndef bare(q, k, v, case, ctx): ...\n"
        "def cut(lengths, ranks): raise RuntimeError('no rows')\n"
        "@adapter(features=['causal'], shard=cut)\ndef listed(q, k, v, case, ctx): ...\n"
    )
    packed = {"layout": "thd", "pad_between_seqs": True, "seqlens": [7, 16], "batch": 2}
    fields = [view().fields, view(seqlen_q=20, seqlen_kv=20).fields, view(**packed).fields]
    lines = "".join(json.dumps(c) + "\n" for c in fields)

    def skips(name: str) -> list[str]:
        told = worker(f"{path}:{name}", "--explain-skips", stdin=lines)
        assert told.returncode == 0, told.stderr
        return [json.loads(line)["skip"] for line in told.stdout.splitlines()]

    undivided, divided, _ = skips("stripes")
    assert "16 rows do not divide" in undivided
    assert divided == ""
    plain, _, without_padding = skips("bare")
    assert plain == ""
    assert "without padding, as the adapter bare declares it" in without_padding
    assert skips("listed") == ["", "", ""]  # an exception of its function is reported as the error of a case


def test_an_adapter_that_cannot_be_loaded_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def f(:\n")
    found = run_cases("", [case("clean")], worker=f"{sys.executable} -m cp_pool.worker {path}")
    assert found.outcomes() == ["infra"]
    assert sum(1 for e in found.events if e["type"] == "pool_spawned") == 1
    assert "SyntaxError" in found.output


def test_inputs_are_copies_that_lie_in_memory_as_they_were_given() -> None:
    whole = torch.arange(48.0).view(2, 3, 8)
    for given in (whole, whole[:, :, :4], whole[:, 1:, 4:], whole.transpose(0, 1)):
        copied = copy_of(given)
        assert copied.equal(given)
        assert copied.stride() == given.stride()
        copied.zero_()
        assert given.any()
    assert copy_of(whole[:, :, 4:]).as_strided((8,), (1,), 0).equal(whole[0, 0])  # the rest of the larger tensor too


# --- Over real ranks --------------------------------------------------------------------------------------------------


#: Replicated tokens, followed by 16 tokens that are sharded.
REPLICATED: dict[str, Any] = {"replicated": 5, "seqlen_q": 21, "seqlen_kv": 21, "dtype": "bf16", "heads": 4}
#: One sequence is shorter than the number of replicated tokens, and one has no token.
REPLICATED_PACK: dict[str, Any] = {
    "replicated": 5, "layout": "thd", "batch": 4, "pad_between_seqs": True, "seqlens": [14, 3, 0, 16], "cp_size": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def stream() -> Run:
    """Runs cases for every feature on one pool of the plain adapter."""
    fields: list[dict[str, Any]] = [
        {"causal": False},
        {"window": [4, 0]},
        {"chunk": 8},
        {
            "causal": False,
            "mask": [[0, 6, 0, 8, "bicausal"], [6, 16, 8, 16, "causal"], [6, 16, 0, 2, "inverse_causal"]],
        },
        {"softcap": 0.5, "bias": "1hss"},
        {"heads": 4, "dtype": "bf16"},
        {"head_dim_v": 4, "layout": "sbhd"},
        {"bias": "bhss"},
        {"bias": "11ss", "layout": "thd", "batch": 3, "pad_between_seqs": True},
        {"softmax": "off_by_one"},
        {"softmax": "learnable", "layout": "thd", "batch": 3, "pad_between_seqs": True},
        {"max_logit": True},
        {"seqlen_kv": 32},
        {"training": False},
        {"deterministic": True},
        REPLICATED,
        {**REPLICATED, "layout": "sbhd", "bias": "1hss", "softmax": "learnable", "causal": False},
        {**REPLICATED_PACK, "bias": "b1ss"},
        {"all_queries": True, "seqlen_q": 3},
        {**REPLICATED_PACK, "all_queries": True, "bias": "11ss"},
        {"comm": "a2a"},
        {"comm": "all_gather"},
    ]
    return run_cases("plain.py:plain", [case("case", **f) for f in fields])


def test_a_plain_adapter_passes_with_every_feature(stream: Run) -> None:
    assert stream.outcomes() == ["pass"] * 22, [(c.event["id"], c.reason) for c in stream.cases]
    assert stream.pools() == 1


def test_results_say_what_computed_them(stream: Run) -> None:
    assert {c.event["backend"] for c in stream.cases} == {"plain"}


# Models for cases with two groups of ranks at once: adapters may take a rank of the group for a rank of the world.
GROUPS = [
    ("right", "pass", ""),
    ("neighbours", "fail", "error beyond the bound"),
    ("source_in_group", "error", "ValueError: Global rank 0 is not part of group"),
    ("source_in_world", "pass", ""),
]


@pytest.fixture(scope="module")
def groups() -> Run:
    """Runs each model on two groups of two ranks, followed by a case with one group of four. If the ranks came back too
    late from the model that throws, all cases are run again."""
    cases = [c for model, _, _ in GROUPS for c in (case(model, group=2), case("right", cp_size=4))]
    for _ in range(TRIES_TO_RECOVER):
        found = run_cases("groups.py:by_model", cases)
        if not found.unhealthy_pools():
            break
    return found


@pytest.mark.long
@pytest.mark.parametrize("row", GROUPS, ids=lambda row: row[0])
def test_a_group_is_a_part_of_the_world(row: tuple[str, str, str], groups: Run) -> None:
    model, outcome, reason = row
    found = groups.cases[2 * GROUPS.index(row)]
    assert (found.event["case"]["model"], found.outcome) == (model, outcome), found.reason or groups.output
    assert reason in found.reason
    assert len(found.event["ranks"]) == 4
    after = groups.cases[2 * GROUPS.index(row) + 1]
    assert after.outcome == "pass", after.reason
    assert groups.pools() == 1, groups.retired


@pytest.mark.long
@pytest.mark.parametrize(("function", "failing"), [("plain.py:plain", 0), ("groups.py:keeping", 2)])
def test_quick_fails_if_the_group_of_an_earlier_case_is_kept(function: str, failing: int, tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    command = [str(BINARY), "run", "--matrix", "quick", "--filter", "group=2 & cp_size=2 & comm=p2p", "--slots", "4",
               "--device", "cpu", "--no-diagnosis", "--events", str(events),
               "--worker", worker_command(function)]  # fmt: skip
    subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    finished = [event for event in map(json.loads, events.read_text().splitlines()) if event["type"] == "case_finished"]
    outcomes = {event["id"]: event["outcome"] for event in finished}
    assert sum(outcome == "fail" for outcome in outcomes.values()) == failing, outcomes
    assert set(outcomes.values()) <= {"pass", "fail"}


@pytest.mark.parametrize("name", ["contiguous", "striped", "absent", "listed", "with_backward", "interleaved", "pair"])
@pytest.mark.long
def test_an_adapter_passes_by_the_convention_that_it_declares(name: str) -> None:
    thd = {"layout": "thd", "batch": 3, "seqlen_q": 24, "seqlen_kv": 24, "seqlens": [8, 16, 24]}
    cases = [case("case", **thd, heads=4), case("case", **thd, softmax="learnable"), case("case", **thd, window=[4, 0])]
    found = run_cases(f"conventions.py:{name}", cases)
    assert found.outcomes() == ["pass"] * 3, [c.reason for c in found.cases] or found.output


@pytest.mark.parametrize("name", ["contiguous", "absent", "listed", "listed_queries", "with_backward"])
@pytest.mark.long
def test_an_adapter_passes_with_tokens_that_every_rank_has(name: str) -> None:
    packed = {**REPLICATED_PACK, "pad_between_seqs": False, "seqlens": [13, 3, 0, 9]}
    cases = [case("case", **packed), case("case", **packed, softmax="learnable", window=[4, 0], causal=False)]
    found = run_cases(f"conventions.py:{name}", cases)
    assert found.outcomes() == ["pass"] * 2, [c.reason for c in found.cases] or found.output


#: A rank may have no key of a sequence, and none at all.
DECODE: dict[str, Any] = {
    "comm": "all_gather", "all_queries": True, "training": False, "layout": "thd", "batch": 4, "pad_between_seqs": True,
    "seqlen_q": 4, "seqlens": [1, 4, 0, 2], "seqlen_kv": 96, "seqlens_kv": [96, 1, 5, 0], "heads": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", ["contiguous", "token_by_token", "pages"])
@pytest.mark.long
def test_an_adapter_decodes_with_keys_cut_as_it_declares(name: str) -> None:
    few = {**DECODE, "seqlens_kv": [2, 1, 0, 1], "cp_size": 4, "softmax": "learnable", "max_logit": True}
    cases = [case("case", **DECODE), case("case", **DECODE, group=2, window=[8, 0]), case("case", **few)]
    found = run_cases(f"decode.py:{name}", cases)
    assert found.outcomes() == ["pass"] * 3, [c.reason for c in found.cases] or found.output
    assert "part_lse" in {check["tensor"] for check in found.cases[0].event["checks"]}


@pytest.mark.long
def test_parts_that_are_not_merged_and_a_wrong_lse_of_a_part_are_seen() -> None:
    for name, reason in (("not_merged", "out: error beyond the bound"), ("empty_part_is_0", "part_lse: ")):
        found = run_cases(f"decode.py:{name}", [case("case", **DECODE)])
        assert found.outcomes() == ["fail"]
        assert reason in found.cases[0].reason, found.output


@pytest.mark.long
def test_tokens_that_are_counted_once_for_each_rank_are_seen() -> None:
    found = run_cases("conventions.py:twice", [case("case", **REPLICATED), case("case", **REPLICATED_PACK)])
    assert found.outcomes() == ["fail", "fail"]
    assert all("out: error beyond the bound" in c.reason for c in found.cases)


@pytest.mark.long
def test_gradients_of_which_each_rank_gives_its_part_are_seen() -> None:
    found = run_cases("conventions.py:parts", [case("case", **REPLICATED)])
    assert found.outcomes() == ["fail"]
    assert any(f"{name}: " in found.cases[0].reason for name in ("dq", "dk", "dv"))


def test_rows_of_an_adapter_that_takes_replicated_tokens_depend_on_them() -> None:
    def rows(lengths: list[int], ranks: int) -> list[list[int]]:
        return []

    assert declared(shard=rows).features == frozenset()
    with pytest.raises(DeclarationError, match=r"cannot be called as rows\(lengths, ranks, replicated\)"):
        declared(shard=rows, features=["replicated"])


@pytest.mark.long
def test_a_replicated_row_that_a_rank_lacks_is_named_before_anything_runs() -> None:
    found = run_cases("conventions.py:selfish", [case("case", **REPLICATED_PACK)])
    assert found.outcomes() == ["error"]
    lacks = "rank 1 lacks row 0 of q (sequence 0, position 0), which is replicated: every rank holds it"
    assert found.cases[0].reason.endswith(f"the rows of selfish, by its shard function: {lacks}")


@pytest.mark.long
def test_rows_without_an_owner_are_named_before_anything_runs() -> None:
    found = run_cases("conventions.py:forgetful", [case("case", layout="thd", batch=2, seqlens=[16, 16])])
    assert found.outcomes() == ["error"]
    no_owner = "no rank owns row 31 of q (sequence 1, position 15)"
    assert found.cases[0].reason.endswith(f"the rows of forgetful, by its shard function: {no_owner}")


def without_chance(value: Any) -> Any:
    """Removes what differs between runs: times, sequence numbers, names, processes and slots of pools, commands, and
    the growth of ranks."""
    chance = {"ts", "seq", "pool", "slots", "pid", "pids", "hygiene", "rerun", "rerun_failed"}
    if isinstance(value, list):
        return [without_chance(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: without_chance(v) for k, v in value.items() if k not in chance and not k.endswith("_ms")}


@pytest.mark.long
def test_a_service_tells_of_an_adapter_what_a_run_of_its_own_tells(service: dict[str, str]) -> None:
    """The service is asked twice; its fork server and ranks are already warm the second time."""
    cases = [case("pass"), case("pass", layout="thd"), case("pass", comm="a2a", heads=3, kv_heads=3)]
    local = run_cases("plain.py:contiguous", cases, "--fork", "on", "--no-service", env=service)
    told = [without_chance(e) for e in local.events if e["type"] != "pool_retired"]
    assert [e["type"] for e in told][:4] == ["run_started", "fork_server", "pool_spawned", "pool_ready"], local.output
    for _ in range(2):
        served = run_cases("plain.py:contiguous", cases, "--fork", "on", "--service", "default", env=service)
        assert [without_chance(e) for e in served.events] == told, served.output
        assert served.code == local.code


@pytest.mark.long
def test_state_is_put_back_before_each_case() -> None:
    found = run_cases("faults.py:faulty", [case("state"), case("change_state"), case("state")])
    before, changed, after = found.cases
    assert changed.outcome == "pass"
    assert before.outcome == after.outcome == "skip"
    assert before.reason == after.reason


@pytest.mark.long
def test_a_skip_is_that_of_its_own_case() -> None:
    """Cases that run and cases that are skipped for different reasons take turns on the same ranks."""
    layouts = ("bshd", "thd", "sbhd", "thd", "thd", "bshd")
    found = run_cases("plain.py:striped", [case("case", layout=layout) for layout in layouts])
    assert found.outcomes() == ["pass" if layout == "thd" else "skip" for layout in layouts], found.output
    for one, layout in zip(found.cases, layouts, strict=True):
        assert layout == "thd" or one.reason.endswith(f"does not declare {layout} in layouts=['thd']")


@pytest.mark.long
def test_the_context_tells_what_the_case_has() -> None:
    """conventions.py:facts checks ctx against the case itself, and returns what plain.py returns."""
    cases = [
        case("case", layout="thd", batch=3, pad_between_seqs=True),
        case("case", cp_size=4, comm="a2a+p2p", heads=4, kv_heads=4),
        case("case", layout="sbhd", batch=2),
        case("case", cp_size=8, inner=4, comm="a2a+p2p", heads=4, kv_heads=4),
        case("case", cp_size=8, comm="a2a+p2p", heads=4, kv_heads=4),
        case("case", group=2, layout="thd", batch=3, pad_between_seqs=True),
        case("case", cp_size=4, group=2, comm="a2a+p2p", heads=4, kv_heads=4),
    ]
    found = run_cases("conventions.py:facts", cases)
    assert found.outcomes() == ["pass"] * 7, [c.reason for c in found.cases] or found.output


@pytest.mark.long
def test_a_null_adapter_costs_a_millisecond_a_case_at_most() -> None:
    """Measures the steps and the reset before them, without the diagnoses that would come between the cases. The limit
    is 3 ms, so that a machine which is three times slower passes."""
    found = run_cases("faults.py:Null", [case("clean", training=True)] * 200, "--no-diagnosis")
    phases = ("forward", "backward", "repeat", "reset")
    times = sorted(sum(c.event["timings_ms"].get(p, 0.0) for p in phases) for c in found.cases)
    assert len(times) == 200
    assert times[100] < 3.0


@pytest.mark.long
def test_the_worker_keeps_to_the_protocol() -> None:
    command = [str(BINARY), "conformance", "--device", "cpu", "--worker", worker_command("plain.py:plain")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_plain_adapter_passes_all_of_quick() -> None:
    command = [str(BINARY), "run", "--matrix", "quick", "--device", "cpu", "-q", "--no-skip", "--worker",
               worker_command("plain.py:plain")]  # fmt: skip
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("device", "shares", "backend", "host"),
    [("cuda:0", False, "nccl", ""), ("cuda:0", True, "nccl", "rank 1 of cp-pool"), ("cpu", False, "gloo", "")],
)
def test_gpu_ranks_use_nccl_and_are_hosts_of_their_own_if_they_share_a_gpu(
    device: str, shares: bool, backend: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    def init(backend: str, **_: Any) -> None:
        used.append(backend)
        raise InterruptedError

    for variable in ("NCCL_HOSTID", "NCCL_NET"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(dist, "init_process_group", init)
    monkeypatch.setattr(runner, "TCPStore", lambda *_, **__: HashStore())
    one: Any = Runner(declared(), None, signal.SIGUSR1)  # type: ignore[arg-type]
    with pytest.raises(InterruptedError):
        one.connect(1, 2, device, shares, "127.0.0.1", 1, "", 0, 1000)
    assert (used, os.environ["NCCL_HOSTID"]) == ([backend], host)
