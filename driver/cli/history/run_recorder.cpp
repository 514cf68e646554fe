#include "driver/cli/history/run_recorder.h"

#include <cerrno>
#include <exception>
#include <sys/stat.h>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "cases/whole_file.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace fs = std::filesystem;
using std::chrono::system_clock;

namespace {

constexpr mode_t kOwnerOnly = 0700;

// Returns false if the folder exists already.
bool make_private_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), kOwnerOnly) == 0) return true;
  if (errno != EEXIST) fail_to_write(path.string(), errno);
  return false;
}

}  // namespace

RunRecorder::RunRecorder(RecordOptions options, std::string command, std::function<void(const std::string& text)> tell)
    : options_{std::move(options)}, tell_{std::move(tell)} {
  file_.command = std::move(command);
  file_.version = CP_POOL_VERSION;
}

void RunRecorder::begin(const Event& started) {
  const auto folder = options_.keep ? records_folder(options_.folder) : std::nullopt;
  if (!folder) return;
  const auto now = system_clock::now();
  file_.started = utc_timestamp(now);
  try {
    make_folder(*folder, now);
    events_.emplace(folder_ / kRecordEvents);  // locked from here on, which marks the run as going on
    events_->on_event(started);
    write_file();  // makes the folder a record
  } catch (const std::exception& e) {
    lose(e.what());
    return;
  }
  prune_records(*folder, options_.limits, id_, now);
}

void RunRecorder::make_folder(const fs::path& folder, system_clock::time_point now) {
  std::error_code error;
  if (folder.has_parent_path()) fs::create_directories(folder.parent_path(), error);
  if (error) fail_to_write(folder.string(), error.value());
  make_private_folder(folder);
  const std::string time = record_time_text(now);
  std::string after;  // suffix of runs that begin in the same second: "", "b", .. "z", "zb", .., which sort in this
                      // order
  while (!make_private_folder(folder / (time + after))) {
    if (after.empty() || after.back() == 'z') {
      after += 'b';
    } else {
      ++after.back();
    }
  }
  id_ = time + after;
  folder_ = folder / id_;
}

void RunRecorder::write_file() const {
  const fs::path path = folder_ / kRecordFile;
  try {
    WholeFile out(path);
    out.write(to_line(protocol::object_json<nlohmann::ordered_json>(file_)) + '\n');
    out.keep();
  } catch (const std::system_error& e) {
    fail_to_write(path.string(), e.code().value());
  }
}

void RunRecorder::lose(const std::string& why) {
  events_.reset();
  if (!folder_.empty()) remove_record({.id = id_, .folder = folder_});
  id_.clear();
  tell_(fmt::format("this run is not recorded: {} (--no-record does without)", why));
}

void RunRecorder::Sink::on_event(const Event& event) {
  if (std::holds_alternative<RunStarted>(event)) {
    recorder_.begin(event);
  } else if (auto& events = recorder_.events_) {
    try {
      events->on_event(event);
    } catch (const std::exception& e) {
      recorder_.lose(e.what());
    }
  }
  next_.on_event(event);
}

void RunRecorder::finish(int exit_code) {
  if (id_.empty()) return;
  file_.ended = utc_timestamp(system_clock::now());
  file_.exit_code = exit_code;
  try {
    write_file();
  } catch (const std::exception& e) {  // the events still say how the run ended
    tell_(fmt::format("the record of this run lacks its exit code: {}", e.what()));
  }
}

void add_record_options(CLI::App& command, RecordOptions& record) {
  add_flag(command, "--no-record", record.keep, "Do not keep the run for cp-pool runs, show and diff", false);
  add_path(command, "--record-dir", record.folder, "DIR", PathUse::folder,
           "Folder in which runs are kept, instead of cp-pool/runs in the user's state folder");
  add_count(command, "--record-count", record.limits.count, "Keep at most this many runs; 0 = no limit");
  add_duration(command, "--record-age", record.limits.age, std::chrono::milliseconds{0},
               "Remove runs that are older than this; 0 = no limit");
  add_count(command, "--record-size", record.limits.mebibytes, "Keep at most this many MiB of runs; 0 = no limit");
}

void add_records_to_read(CLI::App& command, std::optional<std::filesystem::path>& folder) {
  add_path(command, "--record-dir", folder, "DIR", PathUse::folder,
           "Folder in which runs are kept, as for cp-pool run");
  bar_others_from_configuration(command, {"--record-dir"});
}

std::vector<RunRecord> kept_runs(const std::optional<std::filesystem::path>& folder) {
  const auto where = records_folder(folder);
  if (!where) {
    throw CommandError(ExitCode::bad_input, "neither XDG_STATE_HOME nor HOME says where runs are kept (--record-dir)");
  }
  return run_records(*where);
}

std::filesystem::path events_of_run(const std::filesystem::path& named,
                                    const std::optional<std::filesystem::path>& folder) {
  std::error_code ignored;
  const std::string text = named.string();
  const bool like_id = text.find_first_not_of("0123456789-bcdefghijklmnopqrstuvwxyz") == std::string::npos &&
                       text.find_first_of("0123456789") <= 1;
  if (text != "last" && (!like_id || std::filesystem::exists(named, ignored))) return named;
  return find_record(kept_runs(folder), text).events();
}

}  // namespace cp_pool
