// The file that keeps what searches have found, for later searches of the same worker: a JSON object a line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cases/case.h"
#include "driver/cli/worker_command.h"
#include "driver/events.h"

namespace cp_pool {

// Where a search keeps what it finds unless it is told: cp-pool/found/NAME-DEVICE-HASH.jsonl in $XDG_STATE_HOME, else
// in ~/.local/state. NAME is for people, HASH is of the whole path and name of the worker or adapter. nullopt where
// neither variable names a folder.
std::optional<std::filesystem::path> default_found_file(const WorkerChoice& worker, const std::string& device);

struct FoundCases {
  std::vector<Case> cases;             // each once, in the order of the lines
  std::vector<std::string> bad_lines;  // what is wrong with each, naming file, line and field
};
// A file that is not there holds none. Throws CommandError (bad_input) for one that cannot be read.
FoundCases read_found_cases(const std::filesystem::path& file);

// Passes every event on, and appends each failure that a search finds to the file, with its smallest case; a case that
// is in the file is not added again. What cannot be written is told as the loss of --found.
class FoundSink : public EventSink {
 public:
  // known: what the file holds.
  FoundSink(EventSink& next, std::filesystem::path file, const std::vector<Case>& known);
  void on_event(const Event& event) override;
  void on_tick() override { next_.on_tick(); }

 private:
  EventSink& next_;
  std::filesystem::path file_;
  std::set<std::string> known_;  // the JSON of each case
  bool lost_ = false;
};

}  // namespace cp_pool
