#include "driver/reporters/junit_sink.h"

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pugixml.hpp>

#include "cases/case_groups.h"
#include "driver/figures.h"
#include "driver/reporters/failure_text.h"
#include "driver/reporters/verdict_text.h"
#include "driver/reporters/xml_nodes.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

// The element of a testcase that did not pass: failure (the answer is wrong), error (the test could not be completed),
// skipped (it was not run).
enum class Element { none, failure, error, skipped };

Element element_of(CaseOutcome outcome) {
  switch (outcome) {
    case CaseOutcome::pass:
      return Element::none;
    case CaseOutcome::fail:
      return Element::failure;
    case CaseOutcome::error:
    case CaseOutcome::timeout:
    case CaseOutcome::crash:
    case CaseOutcome::infra:
      return Element::error;
    case CaseOutcome::skip:
    case CaseOutcome::cancelled:
    case CaseOutcome::not_run:
      return Element::skipped;
  }
  return Element::error;
}

// An expected failure counts as skipped, as in reports of other test programs.
Element element_of(const JunitCase& test) {
  if (test.failed_as_expected) return Element::skipped;
  return test.had_to_fail ? Element::failure : element_of(test.outcome);
}

std::string seconds(double value) {
  return fmt::format("{:.3f}", value);
}

void append_properties(pugi::xml_node parent, const std::vector<std::pair<std::string, std::string>>& properties) {
  pugi::xml_node list = parent.append_child("properties");
  for (const auto& [name, value] : properties) {
    pugi::xml_node property = list.append_child("property");
    set(property, "name", name);
    set(property, "value", value);
  }
}

// No published schema allows <properties> in a <testcase>. Lines of this form in <system-out> are the accepted
// replacement (https://github.com/testmoapp/junitxml, "Properties in test output").
std::string property_lines(const std::vector<std::pair<std::string, std::string>>& properties) {
  std::string out;
  for (const auto& [name, value] : properties) {
    std::string line = value;
    std::ranges::replace(line, '\n', ' ');
    out += fmt::format("[[PROPERTY|{}={}]]\n", name, line);
  }
  return out;
}

// Appends a try as Maven's surefire does: flakyFailure or flakyError if the case passed in the end, else rerunFailure
// or rerunError.
void append_try(pugi::xml_node test, const JunitTry& tried, bool passed) {
  const bool failure = element_of(tried.outcome) == Element::failure;
  const char* const element = passed    ? (failure ? "flakyFailure" : "flakyError")
                              : failure ? "rerunFailure"
                                        : "rerunError";
  pugi::xml_node node = test.append_child(element);
  set(node, "type", std::string{to_string(tried.outcome)});
  set(node, "message", tried.message);
  append_text(node, "stackTrace", tried.details);
  if (!tried.stderr_text.empty()) append_text(node, "system-err", tried.stderr_text);
}

// `name` must be unique. `differs` says how often each outcome occurred, for a case whose runs differ
// (CaseRuns::difference).
void append_case(pugi::xml_node suite, const JunitCase& test, const std::string& name, const std::string& differs) {
  pugi::xml_node node = suite.append_child("testcase");
  set(node, "name", name);
  set(node, "classname", test.class_name);
  set(node, "time", seconds(test.seconds));
  const Element result = element_of(test);
  if (result != Element::none) {
    const char* element = result == Element::failure ? "failure" : result == Element::error ? "error" : "skipped";
    pugi::xml_node why = append_text(node, element, test.details);
    set(why, "type",
        test.failed_as_expected ? "xfail"
        : test.had_to_fail      ? "xpass"
                                : std::string{to_string(test.outcome)});
    set(why, "message", test.message + (differs.empty() ? "" : fmt::format(" ({})", differs)));
  }
  for (const JunitTry& tried : test.tries) append_try(node, tried, test.outcome == CaseOutcome::pass);
  append_text(node, "system-out", property_lines(test.properties));
  if (!test.stderr_text.empty()) append_text(node, "system-err", test.stderr_text);
}

void append_figures(const CaseFinished& event, std::vector<std::pair<std::string, std::string>>& properties) {
  if (!event.perf) return;
  const auto add = [&](const char* name, double value) { properties.emplace_back(name, fmt::format("{:.4g}", value)); };
  add("perf_ms", event.perf->ms());
  add("perf_tflops", event.perf->tflops);
  add("perf_gbytes_per_s", event.perf->gbytes_per_s);
  if (event.perf->efficiency) add("perf_efficiency", *event.perf->efficiency);
  if (event.perf->baseline_ms) add("perf_baseline_ms", *event.perf->baseline_ms);
  if (event.perf->ratio()) add("perf_ratio", *event.perf->ratio());
}

std::string message_of(const CaseFinished& event) {
  const std::string& why = why_it_failed(event);
  return fmt::format("{}: {}", to_string(event.outcome), why.empty() ? "no reason given" : protocol::first_line(why));
}

struct Counts {
  std::size_t tests = 0;
  std::size_t failures = 0;
  std::size_t errors = 0;
  std::size_t skipped = 0;
  double seconds = 0;

  void add(Element element, double case_seconds) {
    ++tests;
    failures += element == Element::failure ? 1 : 0;
    errors += element == Element::error ? 1 : 0;
    skipped += element == Element::skipped ? 1 : 0;
    seconds += case_seconds;
  }
};

void set_counts(pugi::xml_node node, const Counts& counts) {
  set(node, "tests", std::to_string(counts.tests));
  set(node, "failures", std::to_string(counts.failures));
  set(node, "errors", std::to_string(counts.errors));
}

}  // namespace

JunitSink::JunitSink(std::filesystem::path path, std::string host) : file_{std::move(path)}, host_{std::move(host)} {}

void JunitSink::on_event(const Event& event) {
  if (const auto* started = std::get_if<RunStarted>(&event)) {
    run_ = *started;
  } else if (const auto* tried = std::get_if<CaseTried>(&event)) {
    tries_.add(*tried);
  } else if (const auto* finished_case = std::get_if<CaseFinished>(&event)) {
    cases_.push_back(describe(*finished_case));
    runs_.add(*finished_case);
  } else if (const auto* verdict = std::get_if<CaseVerdict>(&event)) {
    add(*verdict);
  } else if (const auto* finished = std::get_if<RunFinished>(&event)) {
    run_seconds_ = finished->duration_ms / 1000;
    add_missing(*finished);
    file_.commit(document());
  }
}

JunitCase JunitSink::describe(const CaseFinished& event) const {
  JunitCase out;
  out.index = event.index;
  out.suite = suite_of(event);
  const std::string model = event.payload->model();
  out.class_name = model.empty() ? out.suite : out.suite + "." + model;
  out.name = case_name(event);
  out.id = event.id;
  out.outcome = event.outcome;
  out.seconds = event.duration_ms / 1000;
  const Case* const c = event.payload->attention();
  out.properties = {{"outcome", std::string{to_string(event.outcome)}},
                    {"world_size", std::to_string(event.payload->ranks())},
                    {"pool", event.pool ? event.pool->key : ""},
                    {"pool_generation", event.pool ? std::to_string(event.pool->generation) : ""},
                    {"attempts", std::to_string(event.attempts)},
                    {"backend", event.backend},
                    {"seed", c == nullptr ? "" : std::to_string(c->seed)},
                    {"rerun", event.rerun}};
  if (event.first_run) {
    out.properties.emplace_back("first_outcome", std::string{to_string(event.first_run->outcome)});
    out.properties.emplace_back("first_reason", event.first_run->reason);
  }
  if (!event.implementation.empty()) out.properties.emplace_back("implementation", event.implementation);
  if (event.flaky) out.properties.emplace_back("flaky", "true");
  for (const CaseFinished& tried : tries_.of(event.index)) {
    out.tries.push_back({.outcome = tried.outcome,
                         .message = message_of(tried),
                         .details = failure_details(tried, DrawMask::coarse),
                         .stderr_text = stderr_details(tried)});
  }
  if (event.number) out.properties.emplace_back("number", std::to_string(*event.number));
  if (event.search) out.properties.emplace_back("search", std::string{name_of(*event.search)});
  if (event.shared_gpus > 0) out.properties.emplace_back("shared_gpus", std::to_string(event.shared_gpus));
  if (!event.backend_note.empty()) out.properties.emplace_back("backend_note", event.backend_note);
  if (event.bound_factor) out.properties.emplace_back("bound_factor", fmt::format("{}", *event.bound_factor));
  if (const std::string words = words_on_pass(event); !words.empty()) out.properties.emplace_back("verdict", words);
  if (event.diagnosis) {
    out.properties.emplace_back("diagnosis", event.diagnosis->id);
    out.properties.emplace_back("diagnosis_certainty", std::string{to_string(event.diagnosis->certainty)});
  }
  append_figures(event, out.properties);
  out.failed_as_expected = failed_as_expected(event);
  out.had_to_fail = passed_unexpectedly(event) && event.expected->strict;
  if (event.expected) {
    out.properties.emplace_back("expected",
                                fmt::format("{}: {}", to_string(event.expected->outcome), event.expected->reason));
  }
  if (out.had_to_fail) {
    out.message = protocol::first_line(expected_text(event));
    out.details = fmt::format("{}\nrerun: {}\n", expected_text(event), event.rerun);
  }
  if (event.outcome == CaseOutcome::pass) return out;
  out.message = message_of(event);
  if (out.failed_as_expected) {
    out.message = fmt::format("{} ({})", protocol::first_line(expected_text(event)), out.message);
  }
  out.details = failure_details(event, DrawMask::coarse);
  if (out.details.empty()) out.details = out.message + '\n';  // GitLab shows the text of an element, but no attribute
  if (element_of(out) != Element::skipped) out.details += fmt::format("rerun: {}\n", event.rerun);
  out.stderr_text = stderr_details(event);
  return out;
}

void JunitSink::add(const CaseVerdict& event) {
  const auto test = std::ranges::find(cases_, event.index, &JunitCase::index);
  if (test == cases_.end()) return;
  const Verdict& verdict = event.verdict;
  test->properties.emplace_back("verdict", std::string{name_of(verdict.kind)});
  test->properties.emplace_back("verdict_k", std::to_string(verdict.k));
  test->properties.emplace_back("verdict_n", std::to_string(verdict.n));
  if (verdict.culprit) test->properties.emplace_back("verdict_culprit", *verdict.culprit);
  test->details += verdict_text(verdict);
}

// What a report lacks is an error in a suite of its own, or skipped if it is accepted.
void JunitSink::add_missing(const RunFinished& event) {
  for (const std::string& missing : event.incomplete) {
    JunitCase& test = cases_.emplace_back();
    test.index = std::numeric_limits<std::size_t>::max();  // last
    test.suite = test.class_name = "cp-pool report";
    test.name = "the report is complete";
    test.outcome = event.partial ? CaseOutcome::not_run : CaseOutcome::infra;
    test.message = missing;
    test.details = missing + '\n';
  }
}

std::string JunitSink::document() const {
  std::vector<const JunitCase*> ordered;
  ordered.reserve(cases_.size());
  for (const JunitCase& test : cases_) ordered.push_back(&test);
  std::ranges::sort(ordered, {}, &JunitCase::index);

  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  declaration.append_attribute("version") = "1.0";
  declaration.append_attribute("encoding") = "UTF-8";
  pugi::xml_node root = document.append_child("testsuites");
  set(root, "name", "cp-pool " + run_.title);
  Counts all;
  std::vector<std::pair<std::string, Counts>> suites;  // in the order of their first case
  for (const JunitCase* test : ordered) {
    auto suite = std::ranges::find(suites, test->suite, &std::pair<std::string, Counts>::first);
    if (suite == suites.end()) suite = suites.insert(suites.end(), {test->suite, {}});
    suite->second.add(element_of(*test), test->seconds);
    all.add(element_of(*test), test->seconds);
  }
  set_counts(root, all);
  set(root, "time", seconds(run_seconds_));

  std::map<std::string, int> named;  // a stream or a search may run a case several times
  for (const auto& [name, counts] : suites) {
    pugi::xml_node suite = root.append_child("testsuite");
    set(suite, "name", name);
    set_counts(suite, counts);
    set(suite, "skipped", std::to_string(counts.skipped));
    set(suite, "time", seconds(counts.seconds));
    const auto start = std::chrono::system_clock::to_time_t(run_.started);
    set(suite, "timestamp", fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(start)));
    set(suite, "hostname", host_);
    append_properties(suite, {{"matrix", run_.title},
                              {"size", run_.size},
                              {"device", run_.device},
                              {"implementation", fmt::format("{}", fmt::join(run_.implementations, "; "))},
                              {"cp_pool_version", run_.version}});
    for (const JunitCase* test : ordered) {
      if (test->suite != name) continue;
      const int times = ++named[test->class_name + '\n' + test->name];
      append_case(suite, *test, times == 1 ? test->name : fmt::format("{} (#{})", test->name, times),
                  runs_.difference(test->id));
    }
  }
  std::ostringstream text;
  document.save(text, "  ", pugi::format_indent, pugi::encoding_utf8);
  return text.str();
}

}  // namespace cp_pool
