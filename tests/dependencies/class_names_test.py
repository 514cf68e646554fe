"""No two headers define a class of one name in one namespace, even if no program includes both.

The linker merges the functions of two such classes in silence, so a program that links both may run the wrong one.
"""

import re
import sys
import unittest
from collections import defaultdict

from dependencies_test import sources_of_tree

# clang-format puts namespaces and what is directly in them at the beginning of a line.
LINE = re.compile(r"^(?:namespace (?P<opened>[\w:]+) \{|\}  // namespace (?P<closed>[\w:]+)"
                  r"|(?:class|struct|enum class|enum) (?P<name>\w+)(?= (?:final )?[:{]))", re.MULTILINE)


def defined_twice(headers):
    """The classes that several headers define, as {name with its namespace: paths}. headers: {path: text}."""
    places = defaultdict(list)
    for path, text in sorted(headers.items()):
        namespaces = []
        for found in LINE.finditer(text):
            if found["opened"]:
                namespaces.append(found["opened"])
            elif found["closed"]:
                namespaces.pop()
            else:
                places["::".join([*namespaces, found["name"]])].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


class Definitions(unittest.TestCase):
    def test_no_class_is_defined_twice(self):
        headers = {path: text for path, text in sources_of_tree().items() if path.endswith((".h", ".cuh"))}
        self.assertGreater(len(headers), 200)
        self.assertEqual(defined_twice(headers), {})

    def test_two_that_are_planted(self):
        headers = {
            "a.h": "namespace one {\nclass Same;\nstruct Same {\n};\n}  // namespace one\n",
            "b.h": "namespace one {\nclass Same final : public Base {\n};\n}  // namespace one\n",
            "c.h": "namespace one {\nnamespace two {\nstruct Same {\n};\n}  // namespace two\n}  // namespace one\n",
            "d.h": "namespace three {\nstruct Same {\n  struct Base {\n  };\n};\n}  // namespace three\n",
        }
        self.assertEqual(defined_twice(headers), {"one::Same": ["a.h", "b.h"]})


if __name__ == "__main__":
    sys.exit(unittest.main())
