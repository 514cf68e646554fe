#include "driver/cli/history/failed_cases.h"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "cases/case_json.h"
#include "driver/cli/command_error.h"
#include "driver/cli/execution.h"
#include "driver/cli/history/counted_runs.h"
#include "driver/cli/history/events_file.h"
#include "driver/cli/history/pending_cases.h"

namespace cp_pool {

namespace {

// A case that did not go well in a run of the file.
struct Failure {
  CaseKey key;
  std::size_t run = 0;
  std::optional<Payload> payload;
};

class FailureReader {
 public:
  void take(const Event& event) {
    if (const auto* header = std::get_if<RunStarted>(&event)) begin(*header);
    if (const auto* started = std::get_if<CaseStarted>(&event)) {
      pending_.start(started->id);
      running_[started->id] = started->payload;
    }
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      any_ = true;
      pending_.finish(finished->id);
      add(finished->id, finished->payload, implementation_of(header_, *finished), !went_well(*finished),
          was_reached(finished->outcome));
    }
    if (std::holds_alternative<RunFinished>(event)) knows_rest_ = true;
  }

  [[nodiscard]] bool any() const { return any_; }

  FailedCases close() {
    close_run();
    counted_.close();
    std::set<CaseKey> seen;
    for (const Failure& failure : failures_) {
      if (failure.run != counted_.counted(failure.key) || !seen.insert(failure.key).second) continue;
      failed_.ids.insert(failure.key.id);
      failed_.cases.push_back({.id = failure.key.id, .payload = failure.payload});
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
    header_ = header;
    knows_rest_ = !header.ids.empty();
    pending_.begin(header.ids, std::max(header.cases, header.ids.size()));
  }

  void add(const std::string& id, const std::optional<Payload>& payload, const std::string& implementation, bool failed,
           bool ran) {
    CaseKey key{.id = id,
                .size = header_.size,
                .device = header_.device,
                .implementation = implementation,
                .case_text = payload ? (*payload)->json().dump() : ""};
    counted_.add(key, run_, ran);
    if (failed) failures_.push_back({.key = std::move(key), .run = run_, .payload = payload});
  }

  // Takes the cases that a run had not finished when the next run begins or the file ends, because its driver died.
  void close_run() {
    failed_.unknown_rest |= !knows_rest_;
    for (const auto& [id, times] : pending_.times()) {
      const auto running = running_.find(id);
      add(id, running == running_.end() ? std::nullopt : running->second, implementation_of(header_, {}), true, false);
    }
    pending_.begin({}, 0);
    running_.clear();
  }

  FailedCases failed_;
  std::vector<Failure> failures_;
  CountedRuns counted_;
  PendingCases pending_;                                   // the cases left of the run that is being read
  std::map<std::string, std::optional<Payload>> running_;  // the cases of that run that have started, as far as known
  RunStarted header_;                                      // of the run that is being read
  std::size_t run_ = 0;
  bool any_ = false;
  bool knows_rest_ = true;
};

}  // namespace

FailedCases read_failed_cases(const std::filesystem::path& events_file, const std::function<void(const Event&)>& also) {
  FailureReader reader;
  read_events(events_file, "the file", [&](const Event& event, auto) {
    reader.take(event);
    if (also) also(event);
  });
  if (!reader.any()) refuse_file_without_run(events_file);
  return reader.close();
}

void expect_failures(const FailedCases& failed, const std::filesystem::path& events_file) {
  const std::string file = events_file.string();
  const std::string cut =
      fmt::format("{} was cut off before its run ended: the cases that had not started are unknown", file);
  if (failed.ids.empty() && failed.unknown_rest) throw CommandError(ExitCode::bad_input, cut);
  if (failed.unknown_rest) report_warning(cut + ", so they are not selected");
  if (failed.ids.empty()) {
    throw CommandError(ExitCode::nothing_selected,
                       fmt::format("nothing failed in {}: its cases passed or were skipped", file));
  }
}

}  // namespace cp_pool
