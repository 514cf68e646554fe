// Keeps a run as a record (docs/command_line.md) while it goes on. Options for where runs are recorded, which records
// are kept, and which record is meant.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "driver/cli/history/run_records.h"
#include "driver/cli/option_kinds.h"
#include "driver/core/events.h"
#include "driver/report/output_file.h"

namespace cp_pool {

struct RecordOptions {
  bool keep = true;
  std::optional<std::filesystem::path> folder;  // nullopt means that of the user
  RecordLimits limits;
};

// Passes every event on after it has written it down. An error while writing costs the record and not the run, so
// nothing here throws, except what the next sink throws. A record that cannot be written to its end is removed.
class RunRecorder {
 public:
  // Creates nothing before the run begins. `command` is the command line as the user would type it. `tell` is called
  // at most once, with a line that says why there is no record, or why it lacks its exit code.
  RunRecorder(RecordOptions options, std::string command, std::function<void(const std::string& text)> tell);

  // A sink for one run, which may be left before it ends.
  class Sink : public EventSink {
   public:
    Sink(RunRecorder& recorder, EventSink& next) : recorder_(recorder), next_(next) {}
    void on_event(const Event& event) override;
    void on_tick() override { next_.on_tick(); }

   private:
    RunRecorder& recorder_;
    EventSink& next_;
  };

  // Ends the record with the exit code of the run.
  void finish(int exit_code);

  [[nodiscard]] const std::string& id() const { return id_; }  // empty if the run is not recorded

 private:
  void begin(const Event& started);
  void make_folder(const std::filesystem::path& folder, std::chrono::system_clock::time_point now);
  void write_file() const;
  void lose(const std::string& why);

  RecordOptions options_;
  std::function<void(const std::string& text)> tell_;
  RecordFile file_;
  std::string id_;
  std::filesystem::path folder_;  // the folder of this record
  std::optional<JsonlSink> events_;
};

// Adds the options of `run`: --no-record, --record-dir, --record-count, --record-age, --record-size.
void add_record_options(CLI::App& command, RecordOptions& record);

// Adds --record-dir for commands that read records. Of the options added so far, cp-pool.toml may set this one only.
void add_records_to_read(CLI::App& command, std::optional<std::filesystem::path>& folder);

// Returns the records in this folder, or in the user's own if it is nullopt. Throws CommandError (bad_input).
std::vector<RunRecord> kept_runs(const std::optional<std::filesystem::path>& folder);

// Returns the events file that an option for an earlier run names. "last" names a recorded run, and so does the
// beginning of an ID unless a file of that name exists; anything else is the path of an events file. Throws
// CommandError (bad_input) if no such run is recorded.
std::filesystem::path events_of_run(const std::filesystem::path& named,
                                    const std::optional<std::filesystem::path>& folder);

}  // namespace cp_pool
