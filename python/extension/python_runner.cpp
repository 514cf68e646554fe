#include "python/extension/python_runner.h"

#include <pybind11/stl.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/ScopeExit.h>

#include "cases/case_groups.h"
#include "cases/comm_facts.h"
#include "cp_core/comm/communicator.h"
#include "cp_core/diagnosis/diagnose.h"
#include "python/extension/group_operations.h"

namespace cp_pool {
namespace {

// Operations on groups that are kept of a case.
constexpr std::size_t kMostOperations = 4000;

// Returns the ranks of all groups of a kind. Every rank has to make all of them, in the same order.
std::vector<std::vector<int>> all_groups(const Case& c, std::vector<int> GroupRanks::* member) {
  const Division division = division_of(c);
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < world_size(c); ++rank) {
    const std::vector<int> ranks = group_ranks(rank, world_size(c), division).*member;
    if (!ranks.empty() && ranks.front() == rank) groups.push_back(ranks);
  }
  return groups;
}

}  // namespace

PythonRunner::PythonRunner(const py::object& runner, int interrupt_signal)
    : runner_(runner), breaker_(interrupt_signal), implementation_(runner, breaker_) {}

PythonRunner::~PythonRunner() {
  const py::gil_scoped_acquire gil;
  runner_ = py::object();
}

void PythonRunner::reset(const at::Device& device) {
  reset_numeric_state(device);
  with_python(breaker_, [&] { runner_.attr("reset")(); });
}

std::string PythonRunner::skip_reason(const Case& c, const at::Device& device) {
  return implementation_.skip_reason(c, device);
}

std::string PythonRunner::backend(const Case& c, const at::Device& device) {
  return implementation_.backend(c, device);
}

RankReport PythonRunner::run(const Case& c, const CpGroups& groups, const RunOptions& options) {
  breaker_.begin_case(options.deadline);
  const auto end = c10::make_scope_exit([this] { breaker_.end_case(); });
  const auto ranks_of = [&](std::vector<int> GroupRanks::* member, bool needed) {
    return needed ? all_groups(c, member) : std::vector<std::vector<int>>();
  };
  const bool pairs = inner_ranks(c) > 0;
  with_python(breaker_, [&] {
    runner_.attr("begin")(options.id, ranks_of(&GroupRanks::cp, c.group > 1), ranks_of(&GroupRanks::inner, pairs),
                          ranks_of(&GroupRanks::outer, pairs));
  });
  // To watch every operation would slow timed steps down.
  watch_group_operations(options.perf ? 1 : kMostOperations);
  return run_case(implementation_, c, groups, options);
}

CallReport PythonRunner::run_call(const nlohmann::json& call, const RunOptions& options) {
  breaker_.begin_case(options.deadline);
  const auto end = c10::make_scope_exit([this] { breaker_.end_case(); });
  const auto arguments = call.find("arguments");
  const std::string given = arguments == call.end() ? "{}" : arguments->dump();
  implementation_.forget_idle();
  watch_group_operations(kMostOperations);
  auto [value, remarks] = with_python(breaker_, [&] {
    return runner_.attr("run_call")(options.id, call.at("function").get<std::string>(), given)
        .cast<std::pair<std::string, std::set<std::string>>>();
  });
  return {.value = nlohmann::json::parse(value), .remarks = std::move(remarks)};
}

std::optional<GroupHistory> PythonRunner::history() {
  auto begun = group_operations();
  if (!begun) return {};
  return GroupHistory{.begun = std::move(*begun), .idle = implementation_.idle()};
}

Diagnosis PythonRunner::diagnose(const JudgedCase& judged, const CpGroups& groups, const diagnosis::Settings& settings,
                                 std::chrono::steady_clock::time_point waits_end) {
  breaker_.begin_case(waits_end);
  const auto end = c10::make_scope_exit([this] { breaker_.end_case(); });
  with_python(breaker_, [&] { runner_.attr("begin_diagnosis")(); });
  return diagnosis::diagnose(implementation_, judged, groups, settings);
}

void PythonRunner::connect(const Connection& connection) {
  {
    const std::lock_guard lock(mutex_);
    generation_ = connection.generation;
  }
  breaker_.sockets().remember_own();
  with_python(breaker_, [&] {
    runner_.attr("connect")(connection.rank, connection.world_size, connection.device.str(), connection.shares_gpus,
                            connection.master_addr, connection.master_port, connection.store_prefix,
                            connection.generation, connection.limit.count());
  });
}

void PythonRunner::free_waits(int generation) {
  {
    const std::lock_guard lock(mutex_);
    if (generation < generation_) return;  // belongs to an earlier abort; the connections are new
  }
  breaker_.abort();
}

std::string PythonRunner::reconnect_obstacle() {
  breaker_.sockets().remember_others();
  const bool survives = with_python(breaker_, [&] { return runner_.attr("survives_abort")().cast<bool>(); });
  if (survives) return {};
  return "the adapter does not declare survives_abort";
}

nlohmann::json PythonRunner::ask(const char* method) {
  const auto text = with_python(breaker_, [&] { return runner_.attr(method)().cast<std::string>(); });
  return nlohmann::json::parse(text);
}

nlohmann::json PythonRunner::capabilities() {
  nlohmann::json out = ask("capabilities");
  out["backends"] = {{"python", {implementation_.backend({}, at::kCPU)}}};
  return out;
}

nlohmann::json PythonRunner::versions() {
  return ask("versions");
}

}  // namespace cp_pool
