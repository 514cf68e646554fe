#!/usr/bin/env python3
"""check_junit.py FILE: checks a JUnit report against the common schema, with a parser that is independent of the
writer, and prints the contents of the report as one JSON object. For a wrong report it exits with 1 and writes one line
to stderr.

The schema is junit-10.xsd of the Jenkins xUnit plugin, which defines elements, attributes and the form of times.
CI systems have further rules, which are checked for every report:
- Jenkins' JUnit plugin shows the attribute `message` of a failure, an error or a skip, and groups cases by `classname`.
- GitLab (docs.gitlab.com, "Unit test reports") shows the text of these elements and no attribute. Of several cases with
  the same class and name it shows only the first.
The properties of a case are lines [[PROPERTY|name=value]] in its <system-out>.
"""
import json
import re
import sys
import xml.etree.ElementTree

CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err", "rerunFailure", "rerunError", "flakyFailure",
                 "flakyError"},
    "rerunFailure": {"stackTrace", "system-out", "system-err"},
    "rerunError": {"stackTrace", "system-out", "system-err"},
    "flakyFailure": {"stackTrace", "system-out", "system-err"},
    "flakyError": {"stackTrace", "system-out", "system-err"},
    "properties": {"property"},
}
REQUIRED = {
    "testsuite": {"name", "tests", "failures", "errors"},
    "testcase": {"name"},
    "property": {"name", "value"},
    "rerunFailure": {"type"},
    "rerunError": {"type"},
    "flakyFailure": {"type"},
    "flakyError": {"type"},
}
ALLOWED = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "id", "package"},
    "testcase": {"name", "time", "classname"},
    "property": {"name", "value"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "rerunFailure": {"type", "message"},
    "rerunError": {"type", "message"},
    "flakyFailure": {"type", "message"},
    "flakyError": {"type", "message"},
}
TRIES = {"rerunFailure", "rerunError", "flakyFailure", "flakyError"}
RESULTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}


def fail(message):
    sys.exit(f"{sys.argv[1]}: {message}")


def check_element(element):
    names = set(element.attrib)
    if missing := REQUIRED.get(element.tag, set()) - names:
        fail(f"<{element.tag}> lacks {missing}")
    if extra := names - ALLOWED.get(element.tag, set()):
        fail(f"<{element.tag}> has {extra}")
    if "time" in names and not re.fullmatch(r"[0-9]+\.[0-9]{3}", element.get("time")):
        fail(f"<{element.tag}> has time {element.get('time')!r}")
    for child in element:
        if child.tag not in CHILDREN.get(element.tag, set()):
            fail(f"<{child.tag}> in <{element.tag}>")
        check_element(child)


def properties(element):
    return {p.get("name"): p.get("value") for p in element.findall("properties/property")}


def printed_properties(text):
    lines = [re.fullmatch(r"\[\[PROPERTY\|([a-z_]+)=(.*)\]\]", line) for line in text.splitlines()]
    if None in lines:
        fail(f"<system-out> holds {text!r}")
    return dict(match.groups() for match in lines)


def read_case(case):
    results = [child for child in case if child.tag in RESULTS]
    if len(results) > 1:
        fail(f"{case.get('name')} has {len(results)} results")
    result = results[0] if results else None
    return {
        "name": case.get("name"),
        "classname": case.get("classname"),
        "time": case.get("time"),
        "result": result.tag if results else "passed",
        "type": result.get("type") if results else None,
        "message": result.get("message") if results else None,
        "text": result.text if results else None,
        "stderr": case.findtext("system-err"),
        "tries": [{"element": child.tag, "type": child.get("type"), "message": child.get("message"),
                   "text": child.findtext("stackTrace"), "stderr": child.findtext("system-err")}
                  for child in case if child.tag in TRIES],
        "properties": printed_properties(case.findtext("system-out")),
    }


def check_what_ci_shows(cases):
    seen = set()
    for case in cases:
        if not case["classname"]:
            fail(f"{case['name']} has no class")
        if (key := (case["classname"], case["name"])) in seen:
            fail(f"{key} twice: GitLab drops the second")
        seen.add(key)
        if case["result"] != "passed" and not (case["message"] and (case["text"] or "").strip()):
            fail(f"{case['name']} does not say why in both message and text")


def check_counts(element, cases):
    counted = {"tests": len(cases)}
    for tag, attribute in RESULTS.items():
        counted[attribute] = sum(case["result"] == tag for case in cases)
    for attribute, count in counted.items():
        if element.get(attribute, str(count)) != str(count):
            fail(f"<{element.tag}> says {attribute}={element.get(attribute)}, it holds {count}")


def main():
    root = xml.etree.ElementTree.parse(sys.argv[1]).getroot()
    if root.tag != "testsuites":
        fail(f"the root is <{root.tag}>")
    check_element(root)
    suites = []
    for suite in root:
        cases = [read_case(case) for case in suite.findall("testcase")]
        check_counts(suite, cases)
        if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", "")):
            fail(f"timestamp {suite.get('timestamp')!r}")
        suites.append({"name": suite.get("name"), "time": suite.get("time"), "properties": properties(suite),
                       "cases": cases})
    cases = [case for suite in suites for case in suite["cases"]]
    check_counts(root, cases)
    check_what_ci_shows(cases)
    print(json.dumps({"name": root.get("name"), "time": root.get("time"), "suites": suites}))


main()
