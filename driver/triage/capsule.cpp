#include "driver/triage/capsule.h"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_id.h"
#include "cases/file_reader.h"
#include "cases/whole_file.h"
#include "driver/core/rank_environment.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace {

constexpr const char* kCapsuleFile = "capsule.json";
constexpr int kIndent = 1;

template <HasFields Struct>
std::string json_text(const Struct& of) {
  return protocol::object_json<nlohmann::ordered_json>(of).dump(kIndent, ' ', false,
                                                                nlohmann::ordered_json::error_handler_t::replace) +
         '\n';
}

void write_whole(const std::filesystem::path& file, std::string_view text) {
  try {
    WholeFile whole(file);
    whole.write(text);
    whole.keep();
  } catch (const std::system_error& e) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", file.string(), e.code().message()));
  }
}

// Copies the dumps of the case. Every group of ranks has a file of its own.
void copy_dumps(const std::filesystem::path& from, const std::string& of, const std::filesystem::path& to) {
  const std::string name = case_file_name(of) + '.';
  const std::string of_groups = case_file_name(of) + ".group";
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string file = entry.path().filename().string();
    const bool is_dump =
        file == name + "safetensors" || (file.starts_with(of_groups) && file.ends_with(".safetensors"));
    if (!is_dump) continue;
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(entry.path(), to / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
  }
}

constexpr std::size_t kMostCases = 1000;  // only the last cases of a longer history are kept

// The cases that a pool has to run for the failure to come again, as far as the verdict tells.
std::vector<const SentCase*> needed(std::span<const SentCase> sent, const Verdict* verdict) {
  std::vector<const SentCase*> out;
  const bool alone = verdict != nullptr && (verdict->kind == VerdictKind::real || verdict->kind == VerdictKind::infra);
  const std::span<const SentCase> history = sent.first(alone ? 0 : sent.size() - 1);
  for (const SentCase& before : history) out.push_back(&before);
  if (verdict != nullptr && verdict->culprit) {
    const auto culprit = std::ranges::find(out.rbegin(), out.rend(), *verdict->culprit,
                                           [](const SentCase* before) { return before->named.id; });
    if (culprit != out.rend()) out = {*culprit};
  }
  out.push_back(&sent.back());
  return out;
}

// own: variables that an override adds; secrets among them are left out, too.
std::vector<std::string> environment_of(const std::vector<std::string>& own) {
  std::vector<std::string> out = environment_to_keep();
  for (const std::string& entry : own) {
    const std::size_t equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    std::erase_if(out, [&](const std::string& kept) { return kept.starts_with(name + '='); });
    if (!may_be_secret(name, entry.substr(equals + 1))) out.push_back(entry);
  }
  return out;
}

// config: with what the case's own ranks change.
Capsule capsule_of(const RunConfig& config, const protocol::ReadyEvent& worker, const HistoryOfFailure& failure,
                   const Item& named) {
  Capsule out;
  static_cast<RunSettings&>(out) = config;
  out.version = CP_POOL_VERSION;
  out.id = failure.event.id;
  out.outcome = failure.event.outcome;
  out.reason = failure.event.reason;
  out.rerun = failure.event.rerun;
  out.folder = std::filesystem::current_path().string();
  out.environment = environment_of(named.ranks ? named.ranks->environment : std::vector<std::string>{});
  out.perf = config.perf;
  if (out.perf) out.perf->trace_dir.reset();
  out.worker_name = worker.worker;
  out.versions = worker.versions;
  return out;
}

}  // namespace

void write_capsule(const std::filesystem::path& folder, const Capsule& capsule, std::string_view requests,
                   const CaseFinished& result, const std::optional<std::filesystem::path>& dump_dir) {
  try {
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    if (dump_dir) copy_dumps(*dump_dir, result.dump_name.empty() ? capsule.id : result.dump_name, folder / "dump");
  } catch (const std::filesystem::filesystem_error& e) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", folder.string(), e.code().message()));
  }
  write_whole(folder / "requests.jsonl", requests);
  write_whole(folder / "result.json", json_text(result));
  for (const StderrTail& tail : result.stderr_tails) {
    write_whole(folder / fmt::format("rank{}.stderr.txt", tail.rank), tail.text);
  }
  write_whole(folder / kCapsuleFile, json_text(capsule));  // written last: if it exists, the other files do too
}

Capsule read_capsule(const std::filesystem::path& folder) {
  const std::filesystem::path file = std::filesystem::is_directory(folder) ? folder / kCapsuleFile : folder;
  try {
    const std::string text = FileReader(file.string()).read_all();
    const nlohmann::json json = protocol::parse_any_json(text);
    Capsule capsule = protocol::read_fields<Capsule>(protocol::Fields(json, file.string()));
    if (capsule.capsule != 1) {
      throw CaseError(fmt::format("{}: capsule: version {} is unknown, the only known version is 1", file.string(),
                                  capsule.capsule));
    }
    if (capsule.cases.empty()) throw CaseError(fmt::format("{}: cases: the list is empty", file.string()));
    if (capsule.worker_command.empty()) throw CaseError(fmt::format("{}: worker: the command is empty", file.string()));
    return capsule;
  } catch (const std::system_error& e) {
    throw CaseError(fmt::format("cannot read {}: {}", file.string(), e.code().message()));
  } catch (const nlohmann::json::exception& e) {
    throw CaseError(fmt::format("{} is not a capsule: {}", file.string(), e.what()));
  } catch (const protocol::ProtocolError& e) {
    throw CaseError(fmt::format("{} is not a capsule: {}", file.string(), e.what()));
  }
}

void write_failure_capsule(const RunConfig& config, const PoolHistory& history, const HistoryOfFailure& failure,
                           const Verdict* verdict) {
  const std::span<const SentCase> until = history.until(failure);
  const Item& named = until.back().named;
  Capsule capsule = capsule_of(config_for(config, named.ranks), history.worker_of(failure), failure, named);
  std::string requests;
  std::vector<const SentCase*> sent = needed(until, verdict);
  if (sent.size() > kMostCases) {
    capsule.left_out = sent.size() - kMostCases;
    sent.erase(sent.begin(), sent.end() - static_cast<std::ptrdiff_t>(kMostCases));
  }
  for (const SentCase* const one : sent) {
    capsule.cases.push_back({one->named.id, one->named.payload, one->named.timeout});
    requests += one->lines;
  }
  if (verdict != nullptr) capsule.verdict = *verdict;
  std::string name = case_file_name(failure.event.id);
  if (failure.event.runs > 1) name += fmt::format(".run{}", failure.event.run);
  if (failure.event.number) name += fmt::format(".number{}", *failure.event.number);
  write_capsule(*config.capsules / name, capsule, requests, failure.event, config.dump_dir);
}

}  // namespace cp_pool
