// The worker's case runner in a user's interpreter, which verifies an adapter.
#pragma once

#include <mutex>
#include <optional>
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
#include "python/extension/python_implementation.h"
#include "python/extension/wait_breaker.h"
#include "worker/case_runner.h"

namespace cp_pool {

class PythonRunner final : public CaseRunner {
  static constexpr std::size_t kMostOperations = 4000;  // operations on groups that are kept of a case

  // Returns the ranks of all groups of a kind. Every rank has to make all of them, in the same order.
  static std::vector<std::vector<int>> all_groups(const Case& c, std::vector<int> GroupRanks::* member) {
    const Division division = division_of(c);
    std::vector<std::vector<int>> groups;
    for (int rank = 0; rank < world_size(c); ++rank) {
      const std::vector<int> ranks = group_ranks(rank, world_size(c), division).*member;
      if (!ranks.empty() && ranks.front() == rank) groups.push_back(ranks);
    }
    return groups;
  }

  // The case ends when the returned object is destroyed.
  [[nodiscard]] auto begin_case(WaitBreaker::Clock::time_point deadline) {
    breaker_.begin_case(deadline);
    return c10::make_scope_exit([this] { breaker_.end_case(); });
  }

 public:
  // runner: a Runner of runner.py. Only the constructor and the destructor must be called with the GIL held.
  PythonRunner(const py::object& runner, int interrupt_signal)
      : runner_(runner), breaker_(interrupt_signal), implementation_(runner, breaker_) {}

  void reset(const at::Device& device) override {
    reset_numeric_state(device);
    with_python(breaker_, [&] { runner_.attr("reset")(); });
  }
  std::string skip_reason(const Case& c, const at::Device& device) override {
    return implementation_.skip_reason(c, device);
  }
  std::string backend(const Case& c, const at::Device& device) override { return implementation_.backend(c, device); }

  RankReport run(const Case& c, const CpGroups& groups, const RunOptions& options) override {
    const auto ends = begin_case(options.deadline);
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
  bool lost_groups() override {
    return with_python(breaker_, [&] { return runner_.attr("has_lost_world")().cast<bool>(); });
  }
  CallReport run_call(const nlohmann::json& call, const RunOptions& options, bool renew_groups) override {
    const auto ends = begin_case(options.deadline);
    const auto arguments = call.find("arguments");
    const std::string given = arguments == call.end() ? "{}" : arguments->dump();
    implementation_.forget_idle();
    watch_group_operations(kMostOperations);
    auto [value, remarks] = with_python(breaker_, [&] {
      return runner_.attr("run_call")(options.id, call.at("function").get<std::string>(), given, renew_groups)
          .cast<std::pair<std::string, std::set<std::string>>>();
    });
    return {.value = nlohmann::json::parse(value), .remarks = std::move(remarks)};
  }
  std::optional<GroupHistory> history() override {
    auto begun = group_operations();
    if (!begun) return {};
    return GroupHistory{.begun = std::move(*begun), .idle = implementation_.idle()};
  }
  bool diagnoses() override { return true; }
  Diagnosis diagnose(const JudgedCase& judged, const CpGroups& groups, const diagnosis::Settings& settings,
                     std::chrono::steady_clock::time_point waits_end) override {
    const auto ends = begin_case(waits_end);
    with_python(breaker_, [&] { runner_.attr("begin_diagnosis")(); });
    return diagnosis::diagnose(implementation_, judged, groups, settings);
  }

  void connect(const Connection& connection) override {
    {
      const std::lock_guard lock(mutex_);
      generation_ = connection.generation;
    }
    breaker_.sockets().remember_own();
    with_python(breaker_, [&] {
      const protocol::RankEnvironment& rank = connection.environment;
      runner_.attr("connect")(rank.rank, rank.world_size, connection.device.str(), connection.shares_gpus,
                              rank.master_addr, rank.master_port, connection.store_prefix, connection.generation,
                              connection.limit.count());
    });
  }
  void free_waits(int generation) override {
    {
      const std::lock_guard lock(mutex_);
      if (generation < generation_) return;  // belongs to an earlier abort; the connections are new
    }
    breaker_.abort();
  }
  std::string reconnect_obstacle() override {
    breaker_.sockets().remember_others();
    const bool survives = with_python(breaker_, [&] { return runner_.attr("survives_abort")().cast<bool>(); });
    return survives ? "" : "the adapter does not declare survives_abort";
  }

  nlohmann::json capabilities() override {
    nlohmann::json out = ask("capabilities");
    out["backends"] = {{"python", {implementation_.backend({}, at::kCPU)}}};
    return out;
  }
  nlohmann::json versions() override { return ask("versions"); }

  [[nodiscard]] WaitBreaker::Reason freed() const { return breaker_.reason(); }

 private:
  nlohmann::json ask(const char* method) {
    return nlohmann::json::parse(with_python(breaker_, [&] { return runner_.attr(method)().cast<std::string>(); }));
  }

  py::object runner_;
  WaitBreaker breaker_;
  PythonImplementation implementation_;
  std::mutex mutex_;
  int generation_ = 0;
};

}  // namespace cp_pool
