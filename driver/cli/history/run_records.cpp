#include "driver/cli/history/run_records.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <ranges>
#include <system_error>
#include <unistd.h>
#include <variant>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "cases/error_reason.h"
#include "driver/cli/program_paths.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/log/run_log.h"
#include "driver/report/output_file.h"
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
    throw CommandError(ExitCode::bad_input, fmt::format("{}: {}", path.string(), e.what()));
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
  std::tm parts{};
  int length = 0;
  const int read = std::sscanf(id.c_str(), "%2d%2d%2d-%2d%2d%2d%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                               &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &length);
  constexpr int kParts = 6;
  constexpr std::size_t kLength = 13;
  const bool is_time = read == kParts && static_cast<std::size_t>(length) == kLength;
  if (!is_time || id.find_first_not_of("bcdefghijklmnopqrstuvwxyz", kLength) != std::string::npos) return std::nullopt;
  constexpr int kYears = 100;  // tm counts from 1900
  parts.tm_year += kYears;
  parts.tm_mon -= 1;
  return system_clock::from_time_t(::timegm(&parts));
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

}  // namespace

std::string record_time_text(system_clock::time_point time) {
  return fmt::format("{:%y%m%d-%H%M%S}", fmt::gmtime(system_clock::to_time_t(time)));
}

std::optional<fs::path> records_folder(const std::optional<fs::path>& named) {
  if (named) return named;
  const auto state = state_folder();
  return state ? std::optional(*state / "runs") : std::nullopt;
}

std::vector<RunRecord> run_records(const fs::path& folder) {
  std::error_code error;
  std::vector<RunRecord> records = folders_in(folder, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CommandError(ExitCode::bad_input, fmt::format("cannot read the records in {}: {}", folder.string(),
                                                        error_reason(error, folder.string())));
  }
  std::erase_if(records, [&](const RunRecord& record) { return !fs::exists(record.folder / kRecordFile, error); });
  return records;
}

const RunRecord& find_record(const std::vector<RunRecord>& records, std::string_view text) {
  if (records.empty()) throw CommandError(ExitCode::bad_input, "no run is recorded");
  if (text == "last") return records.back();
  int place = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with('-') && std::from_chars(text.data(), end, place).ptr == end) {
    const auto back = static_cast<std::size_t>(-std::int64_t{place});
    if (back >= 1 && back <= records.size()) return records[records.size() - back];
    throw CommandError(ExitCode::bad_input,
                       fmt::format("there is no run {}: {} recorded", text,
                                   records.size() == 1 ? "1 run is" : fmt::format("{} runs are", records.size())));
  }
  std::vector<const RunRecord*> meant;
  for (const RunRecord& record : records) {
    if (record.id == text) return record;
    const std::string_view id = record.id;
    if (!text.empty() && (id.starts_with(text) || id.substr(kDateLength).starts_with(text))) meant.push_back(&record);
  }
  if (meant.size() == 1) return *meant.front();
  if (meant.empty()) {
    throw CommandError(
        ExitCode::bad_input,
        fmt::format("no recorded run is called '{}' (see cp-pool runs; the last is {})", text, records.back().id));
  }
  throw CommandError(ExitCode::bad_input, fmt::format("'{}' may be {} recorded runs, such as {} and {}", text,
                                                      meant.size(), meant[0]->id, meant[1]->id));
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
  RunLog().read(record.events(), "the record", [&](const Event& event, const auto& at) {
    if (at && began) facts.duration_ms = std::chrono::duration<double, std::milli>(*at - *began).count();
    if (const auto* finished = std::get_if<CaseFinished>(&event)) {
      ++facts.counts.at(static_cast<std::size_t>(finished->outcome));
    }
  });
  return facts;
}

void remove_record(const RunRecord& record) {
  std::error_code ignored;
  const fs::path gone = record.folder.parent_path() / fmt::format(".{}.{}{}", record.id, ::getpid(), kGone);
  fs::rename(record.folder, gone, ignored);
  fs::remove_all(gone, ignored);
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

}  // namespace cp_pool
