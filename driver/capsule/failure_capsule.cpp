#include "driver/capsule/failure_capsule.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cases/case_file_name.h"
#include "driver/capsule/capsule.h"
#include "driver/rank_environment.h"

namespace cp_pool {

namespace {

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
  out.version = CP_POOL_VERSION;
  out.id = failure.event.id;
  out.outcome = failure.event.outcome;
  out.reason = failure.event.reason;
  out.rerun = failure.event.rerun;
  out.worker = config.worker_command;
  out.implementation = config.implementation;
  out.fork_server = config.fork_server;
  out.folder = std::filesystem::current_path().string();
  out.environment = environment_of(named.ranks ? named.ranks->environment : std::vector<std::string>{});
  out.device = config.device;
  out.share_gpus = config.share_gpus;
  out.timeout_ms = static_cast<double>(config.timeout.count());
  out.start_timeout_ms = static_cast<double>(config.start_timeout.count());
  out.bound_factor = config.bound_factor;
  out.reference_cache = config.reference_cache;
  out.perf = config.perf;
  if (out.perf) out.perf->trace_dir.reset();
  out.worker_name = worker.worker;
  out.versions = worker.versions;
  return out;
}

std::string folder_name(const CaseFinished& event) {
  std::string name = case_file_name(event.id);
  if (event.runs > 1) name += fmt::format(".run{}", event.run);
  if (event.number) name += fmt::format(".number{}", *event.number);
  return name;
}

}  // namespace

void write_failure_capsule(const RunConfig& config, const PoolHistory& history, const HistoryOfFailure& failure,
                           const Verdict* verdict) {
  const std::span<const SentCase> until = history.until(failure);
  const Item& named = until.back().named;
  Capsule capsule = capsule_of(config_for(config, named.ranks), history.worker_of(failure), failure, named);
  CapsuleFiles files;
  std::vector<const SentCase*> sent = needed(until, verdict);
  if (sent.size() > kMostCases) {
    capsule.left_out = sent.size() - kMostCases;
    sent.erase(sent.begin(), sent.end() - static_cast<std::ptrdiff_t>(kMostCases));
  }
  for (const SentCase* const one : sent) {
    CapsuleCase& kept = capsule.cases.emplace_back();
    kept.id = one->named.id;
    kept.payload = one->named.payload;
    if (one->named.timeout) kept.timeout_ms = static_cast<double>(one->named.timeout->count());
    files.requests += one->lines;
  }
  if (verdict != nullptr) capsule.verdict = *verdict;
  files.result = &failure.event;
  files.dump_dir = config.dump_dir;
  write_capsule(*config.capsules / folder_name(failure.event), capsule, files);
}

}  // namespace cp_pool
