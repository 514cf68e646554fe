#include "driver/cli/history/run_records.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <fstream>
#include <ranges>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "cases/error_reason.h"
#include "cases/whole_file.h"
#include "driver/cli/program_paths.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/log/run_log.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace fs = std::filesystem;
using nlohmann::json;
using std::chrono::system_clock;

namespace {

constexpr std::size_t kDateLength = 7;  // "251125-", before the time in an ID

std::optional<RecordFile> read_record_file(const RunRecord& record) {
  const fs::path path = record.folder / kRecordFile;
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  try {
    const json object = protocol::parse_foreign_json(text);
    return protocol::read_fields<RecordFile>(protocol::Fields(object, path.string()));
  } catch (const json::exception& e) {
    throw CommandError(ExitCode::bad_input, "{}: {}", path.string(), e.what());
  } catch (const protocol::ProtocolError& e) {
    throw CommandError(ExitCode::bad_input, e.what());
  }
}

// Returns the event of a line; nullopt for a line without an event of this kind that this version reads.
template <typename Kind>
std::optional<Kind> event_of(const std::string& line) {
  try {
    const std::optional<Event> event = read_event(protocol::parse_foreign_json(line));
    if (event && std::holds_alternative<Kind>(*event)) return std::get<Kind>(*event);
  } catch (const std::exception&) {  // errors of JSON, of fields and of cases
  }
  return std::nullopt;
}

// Returns the event of the last line, if it is run_finished.
std::optional<RunFinished> end_of(const fs::path& events) {
  constexpr std::streamoff kMost = 16384;
  std::ifstream in(events, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  if (size <= 0) return std::nullopt;
  in.seekg(std::max<std::streamoff>(size - kMost, 0));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!text.ends_with('\n')) return std::nullopt;
  text.pop_back();
  const std::size_t before = text.rfind('\n');
  return before == std::string::npos ? std::nullopt : event_of<RunFinished>(text.substr(before + 1));
}

std::uintmax_t size_of(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::uintmax_t size = entry.file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

// Returns the time in an ID: "251125-070012", then letters. nullopt if it is no ID.
std::optional<system_clock::time_point> time_of(const std::string& id) {
  constexpr std::size_t kLength = 13;
  if (id.size() < kLength || id[kDateLength - 1] != '-') return std::nullopt;
  if (id.find_first_not_of("bcdefghijklmnopqrstuvwxyz", kLength) != std::string::npos) return std::nullopt;
  const auto two = [&id](std::size_t at) { return id.substr(at, 2); };
  return parse_utc_timestamp(fmt::format("20{}-{}-{}T{}:{}:{}.000Z", two(0), two(2), two(4), two(7), two(9), two(11)));
}

// A record that is being made has no run.json yet. If its process dies then, it never gets one, so it may be removed
// after kSurelyDead.
bool may_be_removed(const RunRecord& record, system_clock::duration age) {
  constexpr auto kSurelyDead = std::chrono::hours{24};
  if (writer_of(record.events())) return false;
  std::error_code ignored;
  return fs::exists(record.folder / kRecordFile, ignored) || age > kSurelyDead;
}

std::vector<RunRecord> folders_in(const fs::path& folder, std::error_code& error) {
  std::vector<RunRecord> records;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string id = entry->path().filename().string();
    if (time_of(id)) records.push_back({.id = std::move(id), .folder = entry->path()});
  }
  std::ranges::sort(records, {}, &RunRecord::id);
  return records;
}

constexpr const char* kGone = ".gone";  // the suffix of a record that is being removed

// Removes one record, if possible. Other processes see the whole record or none.
void remove_record(const RunRecord& record) {
  std::error_code ignored;
  const fs::path gone = record.folder.parent_path() / fmt::format(".{}.{}{}", record.id, ::getpid(), kGone);
  fs::rename(record.folder, gone, ignored);
  fs::remove_all(gone, ignored);
}

constexpr mode_t kOwnerOnly = 0700;

// Returns false if the folder exists already.
bool make_private_folder(const fs::path& path) {
  if (::mkdir(path.c_str(), kOwnerOnly) == 0) return true;
  if (errno != EEXIST) fail_to_write(path.string(), errno);
  return false;
}

}  // namespace

std::optional<fs::path> records_folder(const std::optional<fs::path>& named) {
  if (named) return named;
  const auto state = state_folder();
  return state ? std::optional(*state / "runs") : std::nullopt;
}

std::vector<RunRecord> run_records(const fs::path& folder) {
  std::error_code error;
  std::vector<RunRecord> records = folders_in(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CommandError(ExitCode::bad_input, "cannot read the records in {}: {}", folder.string(),
                       error_reason(error, folder.string()));
  }
  std::erase_if(records, [&](const RunRecord& record) { return !fs::exists(record.folder / kRecordFile, error); });
  return records;
}

const RunRecord& find_record(const std::vector<RunRecord>& records, std::string_view text) {
  if (records.empty()) throw CommandError(ExitCode::bad_input, "no run is recorded");
  if (text == "last") return records.back();
  if (const auto place = parse_number<int>(text); place && text.starts_with('-')) {
    const auto back = static_cast<std::size_t>(-std::int64_t{*place});
    if (back >= 1 && back <= records.size()) return records[records.size() - back];
    throw CommandError(ExitCode::bad_input, "there is no run {}: {} recorded", text,
                       records.size() == 1 ? "1 run is" : fmt::format("{} runs are", records.size()));
  }
  std::vector<const RunRecord*> meant;
  for (const RunRecord& record : records) {
    if (record.id == text) return record;
    const std::string_view id = record.id;
    if (!text.empty() && (id.starts_with(text) || id.substr(kDateLength).starts_with(text))) meant.push_back(&record);
  }
  if (meant.size() == 1) return *meant.front();
  if (meant.empty()) {
    throw CommandError(ExitCode::bad_input, "no recorded run is called '{}' (see cp-pool runs; the last is {})", text,
                       records.back().id);
  }
  throw CommandError(ExitCode::bad_input, "'{}' may be {} recorded runs, such as {} and {}", text, meant.size(),
                     meant[0]->id, meant[1]->id);
}

std::optional<RunStarted> read_record_header(const RunRecord& record) {
  std::ifstream in(record.events(), std::ios::binary);
  std::string line;
  std::getline(in, line);  // the first alone
  return event_of<RunStarted>(line);
}

std::optional<RecordFacts> read_record_facts(const RunRecord& record) {
  RecordFacts facts;
  facts.writer = writer_of(record.events());  // asked first, as the run may end while its files are read
  const std::optional<RecordFile> file = read_record_file(record);
  if (!file) return std::nullopt;
  facts.file = *file;
  if (const auto header = read_record_header(record)) facts.header = *header;
  facts.end = end_of(record.events());
  if (facts.end) {
    facts.counts = facts.end->counts;
    facts.duration_ms = facts.end->duration_ms;
    return facts;
  }
  std::error_code error;
  if (!fs::exists(record.events(), error)) return std::nullopt;
  const auto began = parse_utc_timestamp(facts.file.started);
  read_events(record.events(), "the record", [&](const Event& event, const auto& at) {
    if (at && began) facts.duration_ms = std::chrono::duration<double, std::milli>(*at - *began).count();
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      ++facts.counts.at(static_cast<std::size_t>(finished->outcome));
    }
  });
  return facts;
}

void prune_records(const fs::path& folder, const RecordLimits& limits, const std::string& keep,
                   system_clock::time_point now) {
  std::error_code ignored;
  const std::vector<RunRecord> records = folders_in(folder, ignored);
  const std::uintmax_t most_bytes = static_cast<std::uintmax_t>(limits.mebibytes) << 20U;
  std::uintmax_t bytes = 0;
  std::size_t count = 0;
  // The newest are counted first, so that the oldest go.
  for (const RunRecord& record : std::views::reverse(records)) {
    ++count;
    bytes += size_of(record.folder);
    const auto age = now - *time_of(record.id);
    const bool old = limits.age.count() > 0 && age > limits.age;
    const bool many = limits.count > 0 && count > static_cast<std::size_t>(limits.count);
    const bool large = most_bytes > 0 && bytes > most_bytes;
    if ((old || many || large) && record.id != keep && may_be_removed(record, age)) remove_record(record);
  }
  // Removes what is left of records whose process died while it removed them.
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    std::error_code failed;
    if (entry->path().extension() == kGone) fs::remove_all(entry->path(), failed);
  }
}

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
  const std::string time = fmt::format("{:%y%m%d-%H%M%S}", fmt::gmtime(system_clock::to_time_t(now)));
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

void RunRecorder::take(const Event& event) {
  if (std::holds_alternative<RunStarted>(event)) {
    begin(event);
  } else if (events_) {
    try {
      events_->on_event(event);
    } catch (const std::exception& e) {
      lose(e.what());
    }
  }
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
  bar_others_from_configuration(command, "--record-dir");
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
