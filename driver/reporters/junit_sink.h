// JUnit XML for CI systems: a <testsuite> for each suite of the cases, a <testcase> for each case (docs/command_line.md
// has the mapping of outcomes).
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "driver/events.h"
#include "driver/reporters/case_runs.h"
#include "driver/reporters/case_tries.h"
#include "driver/reporters/output_file.h"
#include "worker/protocol/own_addresses.h"

namespace cp_pool {

// The file begins with this text, in this version and earlier ones.
inline constexpr std::string_view kJunitStart =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"cp-pool ";

// A try of a case that was not its last.
struct JunitTry {
  CaseOutcome outcome = CaseOutcome::error;
  std::string message;
  std::string details;
  std::string stderr_text;
};

// A case as the report shows it. Texts are cleaned.
struct JunitCase {
  std::size_t index = 0;
  std::string suite;
  std::string class_name;
  std::string name;  // with the number of the run, if the case runs several times (--repeat)
  std::string id;
  CaseOutcome outcome = CaseOutcome::not_run;
  bool failed_as_expected = false;
  bool had_to_fail = false;  // it had to fail, and passed
  std::string message;       // one line
  std::string details;
  std::string stderr_text;
  double seconds = 0;
  std::vector<JunitTry> tries;
  std::vector<std::pair<std::string, std::string>> properties;
};

class JunitSink : public EventSink {
 public:
  // Checks that the file can be written. `host` is the host that the report names. Throws OutputError.
  explicit JunitSink(std::filesystem::path path, std::string host = protocol::host_name());

  // Writes the file on run_finished, interrupted or not. Throws OutputError.
  void on_event(const Event& event) override;

 private:
  [[nodiscard]] JunitCase describe(const CaseFinished& event) const;
  void add(const CaseVerdict& event);
  void add_missing(const RunFinished& event);
  [[nodiscard]] std::string document() const;

  AtomicFile file_;
  std::string host_;
  RunStarted run_;
  double run_seconds_ = 0;
  std::vector<JunitCase> cases_;
  CaseRuns runs_;
  CaseTries tries_;
};

}  // namespace cp_pool
