// The file that keeps the cases that searches have found, for later searches of the same worker: one JSON object a
// line.
#pragma once

#include "driver/cli/worker_command.h"
#include "driver/core/events.h"

namespace cp_pool {

// Returns where a search keeps what it finds by default: cp-pool/found/NAME-DEVICE-HASH.jsonl in $XDG_STATE_HOME, or
// else in ~/.local/state. NAME is for people; HASH identifies the whole path and name of the worker or adapter. nullopt
// if neither $XDG_STATE_HOME nor $HOME names a folder.
std::optional<std::filesystem::path> default_found_file(const WorkerChoice& worker, const std::string& device);

struct FoundCases {
  std::vector<Case> cases;             // without duplicates, in the order of the lines
  std::vector<std::string> bad_lines;  // why each is refused, with file, line and field
};
// Reads the file; one that does not exist holds no cases. Throws CommandError (bad_input) if it cannot be read.
FoundCases read_found_cases(const std::filesystem::path& file);

// Passes every event on, and appends each failure that a search finds to the file, with its smallest case. A case that
// is in the file is not added again. If the file cannot be written, sends OutputLost for --found, once.
class FoundSink : public EventSink {
 public:
  // `known` are the cases that the file holds.
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
