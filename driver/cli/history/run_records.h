// Records of earlier runs: which there are, and which of them somebody means. docs/records.md describes their folders.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "cases/case_outcome.h"
#include "cases/fields.h"
#include "driver/events.h"

namespace cp_pool {

inline constexpr const char* kRecordEvents = "events.jsonl";  // as --events writes it
inline constexpr const char* kRecordFile = "run.json";        // a RecordFile

// What run.json holds. It is replaced once, at the end of its run.
struct RecordFile {
  std::string command;
  std::string version;
  std::string started;                              // as "ts" of an event
  std::optional<std::string> ended = std::nullopt;  // none: the run goes on, or was killed
  std::optional<int> exit_code = std::nullopt;      // likewise

  static constexpr auto fields() {
    return std::tuple{field("command", &RecordFile::command), field("version", &RecordFile::version),
                      field("started", &RecordFile::started), field("ended", &RecordFile::ended, Presence::sparse),
                      field("exit_code", &RecordFile::exit_code, Presence::sparse)};
  }
};

// The folder of the records: the one that is named, else runs in state_folder(). nullopt: there is none.
std::optional<std::filesystem::path> records_folder(const std::optional<std::filesystem::path>& named);

struct RunRecord {
  std::string id;
  std::filesystem::path folder;

  [[nodiscard]] std::filesystem::path events() const { return folder / kRecordEvents; }
};

// The oldest first. A folder that is not there has none. Throws CommandError (bad_input) if it cannot be read.
std::vector<RunRecord> run_records(const std::filesystem::path& folder);

// What the ID of a run begins with that began at this time: "251125-070012", in UTC.
std::string record_time_text(std::chrono::system_clock::time_point time);

// The one of them that `text` means: "last", "-1" for the last, "-2" for the one before, .., its ID, or the beginning
// of its ID or of the time in it. Throws CommandError (bad_input): there is none, or several are meant.
const RunRecord& find_record(const std::vector<RunRecord>& records, std::string_view text);

// What is known of a recorded run without a look at each of its cases.
struct RecordFacts {
  RecordFile file;
  std::optional<std::string> writer;  // the process that runs it
  RunStarted header;
  OutcomeCounts counts{};
  double duration_ms = 0;  // until its last event

  std::optional<RunFinished> end;  // none: the run goes on, or was cut

  // "running", "killed" or "ended".
  [[nodiscard]] std::string_view state() const { return writer ? "running" : file.ended || end ? "ended" : "killed"; }
  // That of the program; where it died between the last event and its own end, that of the events. None: it has not
  // ended.
  [[nodiscard]] std::optional<int> exit_code() const {
    return file.exit_code ? file.exit_code : end ? std::optional(end->exit_code) : std::nullopt;
  }
};
// nullopt for one that was pruned meanwhile. Throws CommandError (bad_input) for files that are none of cp-pool's.
std::optional<RecordFacts> read_record_facts(const RunRecord& record);

// How the run began; nullopt: its events do not say, or it was pruned meanwhile.
std::optional<RunStarted> read_record_header(const RunRecord& record);
// The process that runs it; nullopt: it ended, or was killed.
std::optional<std::string> writer_of(const RunRecord& record);

// Which records are kept; 0 = no limit.
struct RecordLimits {
  int count = 200;
  std::chrono::milliseconds age = std::chrono::hours{30 * 24};
  int mebibytes = 1024;
};
// Removes the oldest records beyond the limits, but none whose run goes on, and not the one that is to be kept. The age
// of a record is that of its ID. What cannot be removed stays.
void prune_records(const std::filesystem::path& folder, const RecordLimits& limits, const std::string& keep,
                   std::chrono::system_clock::time_point now);
// Likewise; other processes see the whole record or none.
void remove_record(const RunRecord& record);

}  // namespace cp_pool
