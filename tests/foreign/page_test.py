#!/usr/bin/env python3
"""Every Python snippet of docs/writing_a_worker.md is part of a worker of docs/examples, which other tests run."""
import re
import textwrap
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main():
    examples = [path.read_text(encoding="utf-8") for path in sorted((DOCS / "examples").glob("*.py"))]
    page = (DOCS / "writing_a_worker.md").read_text(encoding="utf-8")
    snippets = re.findall(r"^( *)```python\n(.*?)^\1```", page, re.DOTALL | re.MULTILINE)
    assert snippets, "the page has no snippet"
    for _, snippet in snippets:
        wanted = textwrap.dedent(snippet)
        found = any(wanted in textwrap.dedent(part) for example in examples for part in windows(example, wanted))
        assert found, f"no worker of docs/examples has this snippet of docs/writing_a_worker.md:\n{wanted}"


def windows(example, wanted):
    """All sequences of as many lines as `wanted` has; dedented, they also match a snippet that is indented there."""
    lines, count = example.splitlines(keepends=True), wanted.count("\n")
    return ("".join(lines[i : i + count]) for i in range(len(lines) - count + 1))


if __name__ == "__main__":
    main()
