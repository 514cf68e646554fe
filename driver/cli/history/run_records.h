// Records of runs: keeps one while its run goes on, lists them, and finds the one that the user means.
// docs/command_line.md describes their folders.
#pragma once

#include <filesystem>
#include <functional>

#include "driver/cli/option_kinds.h"
#include "driver/core/events.h"
#include "driver/report/output_file.h"

namespace cp_pool {

inline constexpr const char* kRecordEvents = "events.jsonl";  // as --events writes it
inline constexpr const char* kRecordFile = "run.json";        // a RecordFile

// The content of run.json, which is replaced once, at the end of the run.
struct RecordFile {
  std::string command;
  std::string version;
  std::string started;                              // in the format of "ts" of an event
  std::optional<std::string> ended = std::nullopt;  // nullopt if the run goes on or was killed
  std::optional<int> exit_code = std::nullopt;      // nullopt in the same cases

  static constexpr auto fields() {
    return FieldList{optional<&RecordFile::command, &RecordFile::version, &RecordFile::started>(),
                     sparse<&RecordFile::ended, &RecordFile::exit_code>()};
  }
};

// Returns the folder of the records: `named`, or else runs in state_folder(). nullopt if there is neither.
std::optional<std::filesystem::path> records_folder(const std::optional<std::filesystem::path>& named);

struct RunRecord {
  std::string id;
  std::filesystem::path folder;

  [[nodiscard]] std::filesystem::path events() const { return folder / kRecordEvents; }
};

// Returns the records in the folder, the oldest first; none if it does not exist. Throws CommandError (bad_input) if
// the folder cannot be read.
std::vector<RunRecord> run_records(const std::filesystem::path& folder);

// Returns the record that `text` means: "last" or "-1" for the last, "-2" for the one before it and so on, or the
// beginning of an ID or of the time in it. Throws CommandError (bad_input) if there is no such record or more than one.
const RunRecord& find_record(const std::vector<RunRecord>& records, std::string_view text);

// A summary of a recorded run, read without its cases if the run has ended.
struct RecordFacts {
  RecordFile file;
  std::optional<std::string> writer;  // the process that runs it; nullopt if none does
  RunStarted header;
  OutcomeCounts counts{};
  double duration_ms = 0;  // up to its last event

  std::optional<RunFinished> end;  // nullopt if the run goes on or was cut

  // "running", "killed" or "ended".
  [[nodiscard]] std::string_view state() const { return writer ? "running" : file.ended || end ? "ended" : "killed"; }
  // The exit code of the program. If the program died between the last event and its own end, the code is that of the
  // events. nullopt if the run has not ended.
  [[nodiscard]] std::optional<int> exit_code() const {
    return file.exit_code ? file.exit_code : end ? std::optional(end->exit_code) : std::nullopt;
  }
};
// Returns nullopt if the record was pruned meanwhile. Throws CommandError (bad_input) if its files were not written by
// cp-pool.
std::optional<RecordFacts> read_record_facts(const RunRecord& record);

// Returns the first event of the run; nullopt if the events lack it or the record was pruned meanwhile.
std::optional<RunStarted> read_record_header(const RunRecord& record);

// Limits on the records that are kept; 0 means no limit.
struct RecordLimits {
  int count = 200;
  std::chrono::milliseconds age = std::chrono::hours{30 * 24};
  int mebibytes = 1024;
};
// Removes the oldest records beyond the limits, except records of runs that go on and the record `keep`. The age of a
// record comes from its ID. Records that cannot be removed stay.
void prune_records(const std::filesystem::path& folder, const RecordLimits& limits, const std::string& keep,
                   std::chrono::system_clock::time_point now);

struct RecordOptions {
  bool keep = true;
  std::optional<std::filesystem::path> folder;  // nullopt means that of the user
  RecordLimits limits;
};

// Writes down every event of a run, which may end before its last event. An error while writing costs the record and
// not the run, so nothing here throws. A record that cannot be written to its end is removed.
class RunRecorder {
 public:
  // Creates nothing before the run begins. `command` is the command line as the user would type it. `tell` is called
  // at most once, with a line that says why there is no record, or why it lacks its exit code.
  RunRecorder(RecordOptions options, std::string command, std::function<void(const std::string& text)> tell);

  void take(const Event& event);
  // Ends the record with the exit code of the run.
  void finish(int exit_code);

 private:
  void begin(const Event& started);
  void make_folder(const std::filesystem::path& folder, std::chrono::system_clock::time_point now);
  void write_file() const;
  void lose(const std::string& why);

  RecordOptions options_;
  std::function<void(const std::string& text)> tell_;
  RecordFile file_;
  std::string id_;                // empty if the run is not recorded
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
