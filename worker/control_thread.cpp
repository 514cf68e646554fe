#include "worker/control_thread.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "cases/case_phases.h"
#include "worker/pending_operation.h"

namespace cp_pool {

namespace {

constexpr int kAnyGeneration = std::numeric_limits<int>::max();

// Whether the code under test has returned, to a rank in this phase.
bool has_left(std::string_view phase) {
  using namespace case_phase;
  return std::ranges::count(std::array{kReference, kCompare, kDump, kBarrier, kReport, kIdle}, phase) > 0;
}

}  // namespace

ControlThread::ControlThread(const protocol::RankEnvironment& environment, GroupSlot& groups, CaseRunner& runner,
                             std::function<void(const nlohmann::json&)> prepare,
                             std::shared_future<void> compute_stopped)
    : rank_(environment.rank),
      groups_(groups),
      runner_(runner),
      prepare_(std::move(prepare)),
      compute_stopped_(std::move(compute_stopped)),
      messages_(environment),
      thread_([this] { serve(); }) {}

void ControlThread::serve() {
  try {
    for (;;) {
      const ControlCommand command = messages_.receive();
      if (std::holds_alternative<ExitCommand>(command)) return stop(0);
      if (const auto* abort = std::get_if<AbortCommand>(&command)) {
        runner_.free_waits(abort->generation);
        // Waits for the device, on which work of the code under test may never end.
        aborting_ = std::jthread([this, generation = abort->generation] { groups_.abort(generation); });
      }
      if (const auto* hint = std::get_if<PrepareCommand>(&command)) prepare_(hint->case_json);
      if (const auto* probe = std::get_if<ProbeCommand>(&command)) {
        Probed probed{probe->token, current_rank_phase(rank_), runner_.history()};
        if (probed.history) {
          probed.history->rank = rank_;
          probed.history->left = has_left(probed.where.phase);
        }
        messages_.to_rank0(probed);
      }
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "cp-pool-worker: rank {} ends because rank 0 is gone ({})\n", rank_, e.what());
    stop(1);
  }
}

void ControlThread::stop(int exit_code) {
  if (compute_stopped_.wait_for(kStopLimit / 2) == std::future_status::ready) return;
  // An abort may wait for work on a device that never ends, so another thread ends the process in that case.
  std::thread([exit_code] {
    std::this_thread::sleep_for(kStopLimit / 2);
    _exit(exit_code);
  }).detach();
  runner_.free_waits(kAnyGeneration);
  groups_.abort(std::nullopt);
  if (compute_stopped_.wait_for(kStopLimit / 2) == std::future_status::ready) return;
  _exit(exit_code);
}

}  // namespace cp_pool
