#!/usr/bin/env python3
"""ci_test.py WHAT CP_POOL CMAKE CTEST. WHAT is one of:
examples: the YAML files can be parsed, and every cp-pool command in them and in docs/ci.md and docs/configuration.md
          has valid options;
bazel:    the test program of the Bazel example obeys the variables that Bazel sets for a test;
cmake:    a project registers a matrix with CTest, and CTest runs its cases."""
import ast
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "examples/ci"
WHAT, CP_POOL, CMAKE, CTEST = sys.argv[1:]
WORKER = f"python3 '{ROOT}/driver/cli/testing/scripted_worker.py'"
USAGE = 2  # exit code of a bad command line


def call(words, folder, **environment):
    known = {key: value for key, value in os.environ.items() if not re.match("CP_POOL_OPT_|G?TEST_|XML_", key)}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300,
                          env={**known, "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder),
                               **environment})


def scripts(node):
    """The shell scripts of a workflow."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "before_script"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from scripts(value)
    elif isinstance(node, list):
        for each in node:
            yield from scripts(each)


def commands(text):
    """The arguments of each cp-pool call in a script, with a number in place of each variable."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"\$\{\{ *matrix\.shard *\}\}|\$CI_NODE_INDEX|\$CI_NODE_TOTAL", "4", line)
        line = re.sub(r"\s#.*", "", line.strip())
        if line.startswith("cp-pool "):
            yield shlex.split(line)[1:]


def expect_usage(words, folder):
    """Expects that cp-pool accepts the options of a command. `config`, which takes those of `run`, stands in for it."""
    if words[0] == "run":
        words = ["config", *words[1:]]
    done = call([CP_POOL, *words], folder)
    assert done.returncode != USAGE, f"cp-pool {shlex.join(words)}: {done.stderr}"


def check_indexed_job(job, folder):
    """Expects what Kubernetes requires of an Indexed Job, and that each pod runs the shard of its index."""
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pods = job["spec"]["completions"]
    assert job["spec"]["parallelism"] == pods and job["spec"]["backoffLimitPerIndex"] == 0
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # the only policy with which Kubernetes takes a limit per index
    assert pod["terminationGracePeriodSeconds"] > 3 * 5  # three times --grace
    (container,) = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["command"] == ["/bin/bash", "-c"]
    (script,) = container["args"]
    seen = []
    for index in range(pods):
        echo = script.replace("exec cp-pool", "printf '%s\\n'", 1)
        words = call(["/bin/bash", "-c", echo], folder, JOB_COMPLETION_INDEX=str(index)).stdout.splitlines()
        expect_usage(words, folder)
        seen.append((words[words.index("--shard") + 1], words[words.index("--events") + 1]))
    assert seen == [(f"{i + 1}/{pods}", f"/results/events-{i}.jsonl") for i in range(pods)], seen


def test_examples(folder):
    import yaml
    found = 0
    for name in ("github.yml", "gitlab-ci.yml"):
        workflow = yaml.safe_load((EXAMPLES / name).read_text())
        of_file = [words for script in scripts(workflow) for words in commands(script)]
        assert {words[0] for words in of_file} == {"run", "report"}, of_file
        for words in of_file:
            expect_usage(words, folder)
        found += len(of_file)
    jobs = yaml.safe_load((EXAMPLES / "github.yml").read_text())["jobs"]
    assert len(jobs["cases"]["strategy"]["matrix"]["shard"]) == 4
    assert yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["attention"]["parallel"] == 4
    check_indexed_job(yaml.safe_load((ROOT / "examples/cluster/kubernetes.yaml").read_text()), folder)
    # The examples of docs/configuration.md are one configuration.
    page = (ROOT / "docs/configuration.md").read_text()
    (folder / "cp-pool.toml").write_text("".join(re.findall(r"```toml\n(.*?)```", page, re.S)))
    for page in ("ci.md", "configuration.md"):
        text = (ROOT / "docs" / page).read_text()
        for block in re.findall(r"```sh\n(.*?)```", text, re.S):
            for words in commands(block):
                if words[0] not in ("serve", "list"):
                    expect_usage(words, folder)
                    found += 1
    assert found >= 8, found
    done = call([CP_POOL, "config", "--json", "--profile", "nightly"], folder)
    assert done.returncode == 0, done.stderr
    options = json.loads(done.stdout)["options"]
    assert options["repeat"] == {"value": "3", "source": "file", "place": options["repeat"]["place"]}, options["repeat"]
    assert options["repeat"]["place"].startswith("cp-pool.toml:"), options["repeat"]


def test_bazel(folder):
    # BUILD files are in a language that Python's parser reads.
    calls = [node.value for node in ast.parse((EXAMPLES / "bazel/BUILD.bazel").read_text()).body]
    target = {word.arg: word.value for call_of in calls for word in call_of.keywords}
    assert ast.literal_eval(target["srcs"]) == ["cp_pool_test.sh"]
    shards = ast.literal_eval(target["shard_count"])
    ast.parse((EXAMPLES / "bazel/MODULE.bazel").read_text())
    (folder / "bin").mkdir()
    (folder / "bin/cp-pool").symlink_to(CP_POOL)
    ids = []
    for index in range(shards):
        report = folder / f"{index}.xml"
        done = call([EXAMPLES / "bazel/cp_pool_test.sh", "--matrix", str(EXAMPLES / "bazel/mine.json")], folder,
                    PATH=f"{folder}/bin:{os.environ['PATH']}", TEST_TOTAL_SHARDS=str(shards), TEST_SHARD_INDEX=str(index),
                    TEST_SHARD_STATUS_FILE=str(folder / f"{index}.status"), XML_OUTPUT_FILE=str(report),
                    TESTBRIDGE_TEST_ONLY="causal", CP_POOL_OPT_WORKER=WORKER)
        assert done.returncode == 0, done.stderr
        assert (folder / f"{index}.status").exists()
        if report.exists():  # there are fewer cases than shards, so some shards write no report
            tree = xml.etree.ElementTree.parse(report)
            ids += [f"{case.get('classname')}/{case.get('name')}" for case in tree.iter("testcase")]
    assert len(ids) == 2 and all("causal" in each for each in ids), ids


def test_cmake(folder):
    done = call([CMAKE, "-S", str(EXAMPLES / "cmake"), "-B", str(folder / "build"),
                 f"-DCP_POOL_CMAKE={ROOT}/cmake", f"-DCP_POOL_EXECUTABLE={CP_POOL}",
                 f"-DCP_POOL_ARGS=--worker;{WORKER};--slots;1"], folder)
    assert done.returncode == 0, done.stderr
    listed = call([CTEST, "--test-dir", str(folder / "build"), "-N"], folder).stdout
    names = re.findall(r"Test +#\d+: (\S+)", listed)
    assert sorted(names) == ["attention.1", "attention.2", "mine/causal/p2p/cp1/thd/bf16", "mine/causal/p2p/cp2/thd/bf16"], listed
    done = call([CTEST, "--test-dir", str(folder / "build"), "--output-on-failure"], folder)
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r" Passed ", done.stdout)) == 4, done.stdout
    assert (folder / "build/attention.1.xml").exists()
    # Options that the tests of single cases cannot have are refused, not left out.
    for number, option in enumerate(("LABELS slow", "PROCESSORS 4")):
        project = folder / f"refused{number}"
        project.mkdir()
        (project / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.21)\nproject(refused LANGUAGES NONE)\nenable_testing()\n"
            f"include({ROOT}/cmake/CpPoolTests.cmake)\ncp_pool_add_matrix(each PER_CASE {option})\n")
        done = call([CMAKE, "-S", str(project), "-B", str(project / "build"), f"-DCP_POOL_EXECUTABLE={CP_POOL}"],
                    folder)
        assert done.returncode != 0 and "LABELS and PROCESSORS" in done.stderr, done.stderr
    # If the matrix cannot be listed, a test fails; the set of tests is not just empty.
    done = call([CMAKE, "-S", str(EXAMPLES / "cmake"), "-B", str(folder / "build"),
                 f"-DCP_POOL_EXECUTABLE={folder}/gone"], folder)
    assert done.returncode == 0, done.stderr
    done = call([CTEST, "--test-dir", str(folder / "build"), "-R", "^each_case$"], folder)
    assert done.returncode != 0 and re.search(r"Test +#\d+: each_case .*Failed", done.stdout), done.stdout


with tempfile.TemporaryDirectory() as where:
    {"examples": test_examples, "bazel": test_bazel, "cmake": test_cmake}[WHAT](pathlib.Path(where).resolve())
