#include <map>
#include <sstream>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pugixml.hpp>

#include "cases/case_groups.h"
#include "driver/core/figures.h"
#include "driver/report/case_text.h"
#include "driver/report/html_document.h"
#include "driver/report/reports.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

using Properties = std::vector<std::pair<std::string, std::string>>;

// Returns the name of the element of a testcase that did not pass: failure (the answer is wrong), error (the test could
// not be completed), skipped (it was not run). Empty for a pass.
std::string element_of(CaseOutcome outcome) {
  if (outcome == CaseOutcome::pass) return "";
  if (outcome == CaseOutcome::fail) return "failure";
  return urgency_of(outcome) == Urgency::bad ? "error" : "skipped";
}

// An expected failure counts as skipped, as in reports of other test programs.
std::string element_of(const CaseFinished& event) {
  if (failed_as_expected(event)) return "skipped";
  return is_failure(event) && event.outcome == CaseOutcome::pass ? "failure" : element_of(event.outcome);
}

std::string seconds_text(double seconds) {
  return fmt::format("{:.3f}", seconds);
}

// No published schema allows <properties> in a <testcase>. Lines of this form in <system-out> are the accepted
// replacement (https://github.com/testmoapp/junitxml, "Properties in test output").
std::string property_lines(const Properties& properties) {
  std::string out;
  for (const auto& [name, value] : properties) out += fmt::format("[[PROPERTY|{}={}]]\n", name, on_one_line(value));
  return out;
}

void append_figures(const CaseFinished& event, Properties& properties) {
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
  const std::string& why = cause_or_reason(event);
  return fmt::format("{}: {}", to_string(event.outcome), why.empty() ? "no reason given" : protocol::first_line(why));
}

// Appends a try as Maven's surefire does: flakyFailure or flakyError if the case passed in the end, else rerunFailure
// or rerunError.
void append_try(pugi::xml_node test, const CaseFinished& tried, bool passed) {
  const char* const kind = element_of(tried.outcome) == "failure" ? "Failure" : "Error";
  const std::string element = fmt::format("{}{}", passed ? "flaky" : "rerun", kind);
  pugi::xml_node node =
      append(test, element.c_str(), {{"type", std::string{to_string(tried.outcome)}}, {"message", message_of(tried)}});
  append_text(node, "stackTrace", failure_details(tried, DrawMask::coarse));
  if (const std::string said = stderr_details(tried); !said.empty()) append_text(node, "system-err", said);
}

Properties properties_of(const CaseFinished& event, const Verdict* verdict) {
  const Case* const c = event.payload->attention();
  Properties out = {{"outcome", std::string{to_string(event.outcome)}},
                    {"world_size", std::to_string(event.payload->ranks())},
                    {"pool", event.pool ? event.pool->key : ""},
                    {"pool_generation", event.pool ? std::to_string(event.pool->generation) : ""},
                    {"attempts", std::to_string(event.attempts)},
                    {"backend", event.backend},
                    {"seed", c == nullptr ? "" : std::to_string(c->seed)},
                    {"rerun", event.rerun}};
  if (event.first_run) {
    out.emplace_back("first_outcome", std::string{to_string(event.first_run->outcome)});
    out.emplace_back("first_reason", event.first_run->reason);
  }
  if (!event.implementation.empty()) out.emplace_back("implementation", event.implementation);
  if (event.flaky) out.emplace_back("flaky", "true");
  if (event.number) out.emplace_back("number", std::to_string(*event.number));
  if (event.search) out.emplace_back("search", std::string{name_of(*event.search)});
  if (event.shared_gpus > 0) out.emplace_back("shared_gpus", std::to_string(event.shared_gpus));
  if (!event.backend_note.empty()) out.emplace_back("backend_note", event.backend_note);
  if (event.bound_factor) out.emplace_back("bound_factor", fmt::format("{}", *event.bound_factor));
  if (const std::string words = words_on_pass(event); !words.empty()) out.emplace_back("verdict", words);
  if (event.diagnosis) {
    out.emplace_back("diagnosis", event.diagnosis->id);
    out.emplace_back("diagnosis_certainty", std::string{to_string(event.diagnosis->certainty)});
  }
  append_figures(event, out);
  if (event.expected) {
    out.emplace_back("expected", fmt::format("{}: {}", to_string(event.expected->outcome), event.expected->reason));
  }
  if (verdict != nullptr) {
    out.emplace_back("verdict", std::string{name_of(verdict->kind)});
    out.emplace_back("verdict_k", std::to_string(verdict->k));
    out.emplace_back("verdict_n", std::to_string(verdict->n));
    if (verdict->culprit) out.emplace_back("verdict_culprit", *verdict->culprit);
  }
  return out;
}

std::string element_message(const CaseFinished& event) {
  std::string expected{protocol::first_line(expected_text(event))};
  if (event.outcome == CaseOutcome::pass) return expected;
  return failed_as_expected(event) ? fmt::format("{} ({})", expected, message_of(event)) : message_of(event);
}

// GitLab shows the text of an element, but no attribute.
std::string element_text(const CaseFinished& event, const Verdict* verdict) {
  std::string text =
      event.outcome == CaseOutcome::pass ? expected_text(event) + '\n' : failure_details(event, DrawMask::coarse);
  if (text.empty()) text = element_message(event) + '\n';
  if (element_of(event) != "skipped") text += fmt::format("rerun: {}\n", event.rerun);
  return verdict == nullptr ? text : text + verdict_text(*verdict);
}

pugi::xml_node append_test(pugi::xml_node suite, const std::string& name, const std::string& class_name, double ms) {
  return append(suite, "testcase", {{"name", name}, {"classname", class_name}, {"time", seconds_text(ms / 1000)}});
}

void append_why(pugi::xml_node test, const std::string& element, const std::string& type, const std::string& message,
                const std::string& text) {
  pugi::xml_node why = append_text(test, element.c_str(), text);
  set(why, "type", type);
  set(why, "message", message);
}

std::string class_name(const CaseFinished& event) {
  const std::string model = event.payload->model();
  return model.empty() ? suite_of(event) : suite_of(event) + "." + model;
}

// `name` must be unique. `differs` says how often each outcome occurred, for a case whose runs differ
// (CaseRuns::difference).
void append_case(pugi::xml_node suite, const ReportedCase& c, const std::string& name, const std::string& differs,
                 const Verdict* verdict) {
  const CaseFinished& event = c.end();
  pugi::xml_node node = append_test(suite, name, class_name(event), event.duration_ms);
  if (const std::string element = element_of(event); !element.empty()) {
    const std::string type = failed_as_expected(event)    ? "xfail"
                             : passed_unexpectedly(event) ? "xpass"
                                                          : std::string{to_string(event.outcome)};
    append_why(node, element, type, element_message(event) + (differs.empty() ? "" : fmt::format(" ({})", differs)),
               element_text(event, verdict));
  }
  for (const ReportedTry& tried : c.tries) {
    if (&tried != &c.tries.back()) append_try(node, tried.end, event.outcome == CaseOutcome::pass);
  }
  append_text(node, "system-out", property_lines(properties_of(event, verdict)));
  const std::string said = event.outcome == CaseOutcome::pass ? "" : stderr_details(event);
  if (!said.empty()) append_text(node, "system-err", said);
}

pugi::xml_node append_suite(pugi::xml_node root, const std::string& name, const RunStarted& run) {
  pugi::xml_node suite = append(root, "testsuite", {{"name", name}});
  const Properties properties = {{"matrix", run.title},
                                 {"size", run.size},
                                 {"device", run.device},
                                 {"implementation", fmt::format("{}", fmt::join(run.implementations, "; "))},
                                 {"cp_pool_version", run.version}};
  pugi::xml_node list = suite.append_child("properties");
  for (const auto& [key, value] : properties) append(list, "property", {{"name", key}, {"value", value}});
  return suite;
}

std::string count_in(pugi::xml_node node, const char* tests) {
  return std::to_string(node.select_nodes(tests).size());
}

void set_counts(pugi::xml_node node) {
  set(node, "tests", count_in(node, ".//testcase"));
  set(node, "failures", count_in(node, ".//testcase[failure]"));
  set(node, "errors", count_in(node, ".//testcase[error]"));
}

}  // namespace

std::string junit_report(const RunReport& run, const std::string& host) {
  pugi::xml_document document;
  pugi::xml_node declaration = document.append_child(pugi::node_declaration);
  set(declaration, "version", "1.0");
  set(declaration, "encoding", "UTF-8");
  pugi::xml_node root = append(document, "testsuites", {{"name", "cp-pool " + run.header.title}});
  const auto suite_called = [&](const std::string& name) {  // suites are in the order of their first case
    const pugi::xml_node known = root.find_child_by_attribute("name", name.c_str());
    return known ? known : append_suite(root, name, run.header);
  };
  std::map<std::string, int> named;  // a stream or a search may run a case several times
  const auto unique_name = [&](const std::string& of_class, const std::string& name) {
    const int times = ++named[of_class + '\n' + name];
    return times == 1 ? name : fmt::format("{} (#{})", name, times);
  };
  const std::vector<const ReportedCase*> cases = run.listed_cases();
  CaseRuns runs;
  for (const ReportedCase* const c : cases) runs.add(c->end());
  std::map<std::string, double> seconds;  // by suite
  for (const ReportedCase* const c : cases) {
    const CaseFinished& event = c->end();
    const std::string suite = suite_of(event);
    seconds[suite] += event.duration_ms / 1000;
    append_case(suite_called(suite), *c, unique_name(class_name(event), case_name(event)), runs.difference(event.id),
                run.verdict_on(event));
  }
  // What a report lacks is an error in a suite of its own, or skipped if it is accepted.
  const std::string report = "cp-pool report";
  const CaseOutcome lacking = run.end.partial ? CaseOutcome::not_run : CaseOutcome::infra;
  for (const std::string& missing : run.end.incomplete) {
    pugi::xml_node test = append_test(suite_called(report), unique_name(report, "the report is complete"), report, 0);
    append_why(test, element_of(lacking), std::string{to_string(lacking)}, missing, missing + '\n');
    append_text(test, "system-out", "");
  }
  const auto start = std::chrono::system_clock::to_time_t(run.header.started);
  for (pugi::xml_node suite : root.children()) {
    set_counts(suite);
    set(suite, "skipped", count_in(suite, "testcase[skipped]"));
    set(suite, "time", seconds_text(seconds[suite.attribute("name").value()]));
    set(suite, "timestamp", fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::gmtime(start)));
    set(suite, "hostname", host);
  }
  set_counts(root);
  set(root, "time", seconds_text(run.end.duration_ms / 1000));
  std::ostringstream text;
  document.save(text, "  ", pugi::format_indent, pugi::encoding_utf8);
  return text.str();
}

}  // namespace cp_pool
