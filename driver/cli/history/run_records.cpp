#include "driver/cli/history/run_records.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <system_error>
#include <unistd.h>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/error_reason.h"
#include "driver/cli/command_error.h"
#include "driver/cli/history/events_file.h"
#include "driver/cli/state_folder.h"
#include "driver/reporters/events_json.h"
#include "driver/reporters/file_lock.h"
#include "driver/reporters/jsonl_sink.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace fs = std::filesystem;
using nlohmann::json;

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

// The event of the last line, if it is run_finished.
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
  if (before == std::string::npos) return std::nullopt;
  const json line = json::parse(text.substr(before + 1), nullptr, /*allow_exceptions=*/false);
  if (!line.is_object() || line.value("type", "") != RunFinished::kName) return std::nullopt;
  try {
    std::optional<Event> event = read_event(line);
    return event ? std::optional(std::get<RunFinished>(*event)) : std::nullopt;
  } catch (const protocol::ProtocolError&) {
    return std::nullopt;
  }
}

// The header alone: the first line.
std::optional<RunStarted> start_of(const fs::path& events) {
  std::ifstream in(events, std::ios::binary);
  std::string line;
  std::getline(in, line);
  const json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  try {
    const std::optional<Event> event = read_event(object);
    const auto* const header = event ? std::get_if<RunStarted>(&*event) : nullptr;
    return header == nullptr ? std::nullopt : std::optional(*header);
  } catch (const protocol::ProtocolError&) {
    return std::nullopt;
  }
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

// A record that is being made has no run.json yet, and one of a process that died then never gets any.
bool may_be_removed(const RunRecord& record) {
  constexpr auto kSurelyDead = std::chrono::hours{24};
  if (writer_of(record.events())) return false;
  std::error_code error;
  if (fs::exists(record.folder / kRecordFile, error)) return true;
  const auto written = fs::last_write_time(record.folder, error);
  return !error && fs::file_time_type::clock::now() - written > kSurelyDead;
}

std::vector<RunRecord> folders_in(const fs::path& folder, std::error_code& error) {
  std::vector<RunRecord> records;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::string id = entry->path().filename().string();
    const auto is_digit = [](char letter) { return std::isdigit(static_cast<unsigned char>(letter)) != 0; };
    if (id.size() <= kDateLength || !std::ranges::all_of(id.substr(0, kDateLength - 1), is_digit)) continue;
    records.push_back({.id = std::move(id), .folder = entry->path()});
  }
  std::ranges::sort(records, {}, &RunRecord::id);
  return records;
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
    throw CommandError(ExitCode::bad_input, fmt::format("cannot read the records in {}: {}", folder.string(),
                                                        error_reason(error, folder.string())));
  }
  std::erase_if(records, [&](const RunRecord& record) { return !fs::exists(record.folder / kRecordFile, error); });
  return records;
}

const RunRecord& find_record(const std::vector<RunRecord>& records, std::string_view text) {
  if (records.empty()) throw CommandError(ExitCode::bad_input, "no run is recorded");
  if (text == "last") return records.back();
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

std::optional<RecordFacts> read_record_facts(const RunRecord& record) {
  RecordFacts facts;
  facts.writer = writer_of(record.events());  // first, as the run may end while its files are read
  const std::optional<RecordFile> file = read_record_file(record);
  if (!file) return std::nullopt;
  facts.file = *file;
  if (const auto header = start_of(record.events())) facts.header = *header;
  if (const auto end = end_of(record.events())) {
    facts.counts = end->counts;
    facts.duration_ms = end->duration_ms;
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

void prune_records(const fs::path& folder, const RecordLimits& limits, const std::string& keep) {
  std::error_code error;
  const std::vector<RunRecord> records = folders_in(folder, error);
  const std::uintmax_t most_bytes = static_cast<std::uintmax_t>(limits.mebibytes) << 20U;
  std::uintmax_t bytes = 0;
  std::size_t count = 0;
  // The newest are counted first, so that the oldest go.
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    ++count;
    bytes += size_of(record->folder);
    const auto written = fs::last_write_time(record->folder, error);
    const bool old = limits.age.count() > 0 && !error && fs::file_time_type::clock::now() - written > limits.age;
    const bool many = limits.count > 0 && count > static_cast<std::size_t>(limits.count);
    const bool large = most_bytes > 0 && bytes > most_bytes;
    if (!(old || many || large) || record->id == keep || !may_be_removed(*record)) continue;
    // Out of sight first: a record that is half removed is none.
    const fs::path gone = folder / fmt::format(".{}.{}.gone", record->id, ::getpid());
    fs::rename(record->folder, gone, error);
  }
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() == ".gone") fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace cp_pool
