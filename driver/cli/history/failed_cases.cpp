#include "driver/cli/history/failed_cases.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "driver/cli/execution.h"
#include "driver/cli/exit_code.h"
#include "driver/cli/history/counted_runs.h"
#include "driver/cli/history/events_file.h"
#include "driver/cli/history/pending_cases.h"
#include "driver/reporters/event_reading.h"
#include "worker/protocol/json_fields.h"

namespace cp_pool {

namespace {

// The outcome of a case in one run of the file.
struct Verdict {
  CaseKey key;
  std::size_t run = 0;
  bool failed = false;
  nlohmann::json case_json;
};

class FailureReader {
 public:
  void take(const nlohmann::json& event) {
    const protocol::Fields fields{event, "event"};
    const std::string type = fields.get_string("type", "");
    if (type == "run_started") {
      begin(std::get<RunStarted>(read_event(event).value()));
    } else if (type == "case_started") {
      const std::string id = fields.get_string("id");
      pending_.start(id);
      running_[id] = fields.get_object("case");
    } else if (type == "case_finished") {
      any_ = true;
      const std::string id = fields.get_string("id");
      const std::string outcome = fields.get_string("outcome");
      pending_.finish(id);
      add(id, fields.get_object("case"), outcome != "pass" && outcome != "skip",
          outcome != "not-run" && outcome != "cancelled");
    } else if (type == "run_finished") {
      knows_rest_ = true;
    }
  }

  [[nodiscard]] bool any() const { return any_; }

  FailedCases close() {
    close_run();
    counted_.close();
    std::set<CaseKey> seen;
    for (Verdict& verdict : verdicts_) {
      if (!verdict.failed || verdict.run != counted_.counted(verdict.key) || !seen.insert(verdict.key).second) continue;
      failed_.ids.insert(verdict.key.id);
      failed_.cases.push_back({.id = verdict.key.id, .case_json = std::move(verdict.case_json)});
    }
    return std::move(failed_);
  }

 private:
  void begin(const RunStarted& header) {
    close_run();
    any_ = true;
    ++run_;
    failed_.title = header.title;
    failed_.size = header.size;
    device_ = header.device;
    knows_rest_ = !header.ids.empty();
    pending_.begin(header.ids, std::max(header.cases, header.ids.size()));
  }

  void add(const std::string& id, nlohmann::json case_json, bool failed, bool ran) {
    const bool known = !case_json.empty();
    CaseKey key{.id = id, .size = failed_.size, .device = device_, .case_text = known ? case_json.dump() : ""};
    counted_.add(key, run_, ran);
    if (failed) verdicts_.push_back({.key = std::move(key), .run = run_, .failed = true, .case_json = {}});
    if (failed && known) verdicts_.back().case_json = std::move(case_json);
  }

  // Takes the cases that a run has not finished when the next run begins or the file ends: its driver died.
  void close_run() {
    failed_.unknown_rest |= !knows_rest_;
    for (const auto& [id, times] : pending_.times()) {
      const auto running = running_.find(id);
      add(id, running == running_.end() ? nlohmann::json::object() : running->second, true, false);
    }
    pending_.begin({}, 0);
    running_.clear();
  }

  FailedCases failed_;
  std::vector<Verdict> verdicts_;
  CountedRuns counted_;
  PendingCases pending_;                           // of the run that is being read
  std::map<std::string, nlohmann::json> running_;  // likewise: what is known of the cases that have started
  std::string device_;
  std::size_t run_ = 0;
  bool any_ = false;
  bool knows_rest_ = true;
};

}  // namespace

FailedCases read_failed_cases(const std::filesystem::path& events_file) {
  FailureReader reader;
  read_events(events_file, "the file", [&](const nlohmann::json& event) { reader.take(event); });
  if (!reader.any()) {
    throw CommandError(ExitCode::bad_input,
                       fmt::format("the file {} holds no run: was it written by --events?", events_file.string()));
  }
  return reader.close();
}

void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file) {
  const std::string file = events_file.string();
  const std::string cut = fmt::format("{} ends before its run did: which cases it had not come to is not known", file);
  if (failed.ids.empty() && failed.unknown_rest) throw CommandError(ExitCode::bad_input, cut);
  if (failed.unknown_rest) report_warning(cut + ", so they are not selected");
  if (failed.ids.empty()) {
    throw CommandError(ExitCode::nothing_selected,
                       fmt::format("nothing failed in {}: its cases passed or were skipped", file));
  }
}

}  // namespace cp_pool
