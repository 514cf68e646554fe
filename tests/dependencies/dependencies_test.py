"""Compares the includes of all sources with the table of folders in ARCHITECTURE.md, both ways.

A row covers the sources of its folder and of the folders below that have no row of their own. Tests and testing/ may
include anything. The last column of a row names the folders and the libraries whose headers these sources include. A
header in angle brackets that is neither of these libraries nor of the system is an error.
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALL_OF_TREE = ("cases/", "cp_core/", "driver/", "python/", "worker/")
FREE = re.compile(r"(^|/)testing/|_test\.[^/]*$")  # sources that may include anything
SOURCE = re.compile(r"\.(h|cpp|cu|cuh|def)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)

# Headers that all folders may use: those of fmt, of the C++ standard library (no dot in the name), of POSIX and Linux.
FOR_ALL = re.compile(
    r"fmt/|[a-z_]+$|(arpa|linux|net|netinet|sys)/|(cxxabi|dirent|dlfcn|elf|execinfo|fcntl|ifaddrs|link|netdb|poll"
    r"|pthread|pty|sched|signal|termios|ucontext|unistd)\.h$")

# For each library that a row can name, a pattern of its headers. LibTorch has a header for Gloo, which counts as Gloo.
# GoogleTest is for tests alone, so no row can name it.
LIBRARIES = {
    "Gloo": r"gloo/|torch/csrc/distributed/c10d/ProcessGroupGloo",
    "LibTorch": r"(ATen|c10|torch)/",
    "nlohmann/json": r"nlohmann/",
    "Asio": r"asio[./]",
    "CLI11": r"CLI/",
    "pugixml": r"pugixml\.",
    "elfutils": r"elfutils/|dwarf\.h",
    "toml++": r"toml\+\+/",
    "libedit": r"histedit\.h",
    "pybind11": r"pybind11/",
    "CUDA": r"cuda|cudnn|nccl",
}


def table_of(text):
    """The rows of the table of folders: {folder: names in its column "depends on"}."""
    lines = iter(text.splitlines())
    for line in lines:
        if re.fullmatch(r"\|\s*folder\s*\|.*\|\s*depends on\s*\|", line):
            break
    else:
        raise ValueError("no table '| folder | .. | depends on |'")
    next(lines)  # |---|
    rows = {}
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rows[cells[0].strip("`")] = {name.strip().strip("`") for name in cells[-1].split(",") if name.strip()}
    return rows


def library_of(header):
    return next((name for name, pattern in LIBRARIES.items() if re.match(pattern, header)), None)


def folder_of(path, rows):
    """The row that a source belongs to: the longest folder that its path begins with; None if there is none."""
    return max((folder for folder in rows if path.startswith(folder)), key=len, default=None)


def circle_in(needs):
    """Folders that need each other in a circle, as a list that ends where it begins; empty if there is none."""
    done = set()

    def search(folder, path):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in done:
            return []
        for other in sorted(needs.get(folder, ())):
            if circle := search(other, path + [folder]):
                return circle
        done.add(folder)
        return []

    for folder in sorted(needs):
        if circle := search(folder, []):
            return circle
    return []


def faults_of(rows, sources):
    """The differences between table and includes, one line each. sources: {path: text}."""
    faults = []
    used = {folder: set() for folder in rows}
    for path, text in sorted(sources.items()):
        if FREE.search(path):
            continue
        own = folder_of(path, rows)
        if own is None:
            faults.append(f"{path}: no row for its folder")
            continue
        for quoted, angled in INCLUDE.findall(text):
            if quoted and quoted not in sources:
                faults.append(f'{path}: "{quoted}" is not there: includes name the whole path')
                continue
            if quoted and FREE.search(quoted):
                faults.append(f'{path}: "{quoted}" is for tests')
                continue
            if angled and FOR_ALL.match(angled):
                continue
            name = folder_of(quoted, rows) if quoted else library_of(angled)
            if name == own:
                continue
            if name is None:
                faults.append(f"{path}: includes {quoted or angled}, which no row can name")
                continue
            used[own].add(name)
            if name not in rows[own]:
                faults.append(f"{path}: includes {quoted or angled}, and the row of {own} does not name {name}")
    for folder, names in rows.items():
        for name in sorted(names - used[folder]):
            faults.append(f"the row of {folder} names {name}, which no include there needs")
    folders = {folder: {name for name in names if name in rows} for folder, names in used.items()}
    if circle := circle_in(folders):
        faults.append("a circle: " + " -> ".join(circle))
    return faults


def sources_of_tree():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *ALL_OF_TREE],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {path: (ROOT / path).read_text(encoding="utf-8")
            for path in listed if SOURCE.search(path) and (ROOT / path).is_file()}


class Tree(unittest.TestCase):
    def test_includes_are_those_of_the_table(self):
        rows = table_of((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
        rows.pop("tests/")
        sources = sources_of_tree()
        self.assertGreater(len(sources), 300)
        faults = faults_of(rows, sources)
        self.assertFalse(faults, "ARCHITECTURE.md and the includes differ:\n" + "\n".join(faults))

    def test_include_that_is_planted_in_the_tree(self):
        rows = table_of((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
        rows.pop("tests/")
        sources = sources_of_tree()
        for path, header in (
                ("driver/core/events.cpp", "<gloo/context.h>"),
                ("driver/core/events.cpp", "<gtest/gtest.h>"),
                ("driver/core/events.cpp", "<boost/x.hpp>"),
                ("cp_core/comm/communicator.cpp", '"cp_core/comm/nccl/gpu_groups.h"'),
                ("cp_core/comm/peer/puts.cpp", '"cp_core/comm/nccl/nccl_link.h"'),
                ("cp_core/attention/backend.cpp", '"cp_core/attention/math/math_backend.h"'),
                ("cp_core/attention/flash/flash_backend.cpp", '"cp_core/attention/cudnn/cudnn_call.h"'),
        ):
            with self.subTest(path=path, header=header):
                planted = {**sources, path: f"{sources[path]}#include {header}\n"}
                faults = faults_of(rows, planted)
                self.assertTrue(any(f"{path}: includes {header[1:-1]}, " in fault for fault in faults), faults)


class Planted(unittest.TestCase):
    """Tests the comparison itself: each test plants a fault in a small correct tree."""

    TABLE = """
| folder | holds | depends on |
|---|---|---|
| `low/` | a, b | nlohmann/json |
| `low/rows/` | c | `low/` |
| `high/` | d | `low/`, `low/rows/`, LibTorch |

| other | table |
"""

    def setUp(self):
        self.rows = table_of(self.TABLE)
        self.sources = {
            "low/a.h": "#include <vector>\n#include <nlohmann/json.hpp>\n",
            "low/deep/b.cpp": '#include "low/a.h"\n',
            "low/rows/c.h": '#include "low/a.h"\n',
            "high/d.cpp": '#include "low/a.h"\n#  include "low/rows/c.h"\n#include <ATen/core/Tensor.h>\n',
            "low/a_test.cpp": '#include "high/testing/help.h"\n#include <gtest/gtest.h>\n',
            "high/testing/help.h": '#include "high/d.h"\n',
            "high/d.h": "",
        }

    def faults(self):
        return faults_of(self.rows, self.sources)

    def test_right_tree_has_none(self):
        self.assertEqual(self.faults(), [])

    def test_include_that_the_table_does_not_allow(self):
        self.sources["low/rows/c.h"] += '#include "high/d.h"\n'
        self.assertIn("low/rows/c.h: includes high/d.h, and the row of low/rows/ does not name high/", self.faults())

    def test_library_that_the_table_does_not_allow(self):
        self.sources["low/a.h"] += "#include <c10/core/Device.h>\n"
        self.assertEqual(self.faults(),
                         ["low/a.h: includes c10/core/Device.h, and the row of low/ does not name LibTorch"])

    def test_library_that_no_row_can_name(self):
        self.sources["low/a.h"] += "#include <boost/x.hpp>\n"
        self.assertEqual(self.faults(), ["low/a.h: includes boost/x.hpp, which no row can name"])

    def test_headers_that_all_folders_may_use(self):
        self.sources["low/a.h"] += "#include <fmt/format.h>\n#include <sys/stat.h>\n#include <unistd.h>\n"
        self.assertEqual(self.faults(), [])

    def test_row_that_no_include_needs(self):
        self.sources["high/d.cpp"] = '#include "low/a.h"\n#include <ATen/core/Tensor.h>\n'
        self.assertEqual(self.faults(), ["the row of high/ names low/rows/, which no include there needs"])

    def test_folder_that_is_not_there(self):
        self.rows["low/"].add("gone/")
        self.assertEqual(self.faults(), ["the row of low/ names gone/, which no include there needs"])

    def test_circle_that_the_table_allows(self):
        self.rows["low/"].add("high/")
        self.sources["low/a.h"] += '#include "high/d.h"\n'
        self.assertEqual(self.faults(), ["a circle: high/ -> low/ -> high/"])

    def test_folder_without_a_row(self):
        self.sources["new/e.cpp"] = ""
        self.assertEqual(self.faults(), ["new/e.cpp: no row for its folder"])

    def test_product_that_includes_what_is_for_tests(self):
        self.sources["high/d.cpp"] += '#include "high/testing/help.h"\n'
        self.assertEqual(self.faults(), ['high/d.cpp: "high/testing/help.h" is for tests'])

    def test_include_without_the_path_from_the_top(self):
        self.sources["high/d.cpp"] += '#include "d.h"\n'
        self.assertEqual(self.faults(), ['high/d.cpp: "d.h" is not there: includes name the whole path'])


if __name__ == "__main__":
    sys.exit(unittest.main())
