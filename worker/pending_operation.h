// The phase of the case that the computing thread is in, and the communication that it waits in, readable from a signal
// handler and from other threads. A process has one of each, because a signal handler can reach only global state.
#pragma once

#include <cstddef>
#include <string_view>

#include "worker/protocol/messages.h"

namespace cp_pool {

inline constexpr std::size_t kMaxPendingBytes = 256;

// The text is cut at kMaxPendingBytes; empty: no operation. Called by the computing thread only.
void set_pending_operation(std::string_view text) noexcept;

// Returns the communication that the computing thread waits in; empty if there is none. Async-signal-safe. The text
// lives in static storage and may be torn if the computing thread changes it meanwhile.
std::string_view pending_operation() noexcept;

// The phase of the rank: "start", "idle", or a phase of the case ("forward"). The same rules apply.
void set_current_phase(std::string_view name) noexcept;
std::string_view current_phase() noexcept;

// Returns a consistent copy, for other threads, of the computing thread's phase and operation, and of the time spent in
// each. rank: this rank's.
protocol::RankPhase current_rank_phase(int rank);

// Sets the pending operation for as long as the object lives.
class PendingOperationGuard {
 public:
  explicit PendingOperationGuard(std::string_view text) noexcept { set_pending_operation(text); }
  PendingOperationGuard(const PendingOperationGuard&) = delete;
  PendingOperationGuard& operator=(const PendingOperationGuard&) = delete;
  ~PendingOperationGuard() { set_pending_operation({}); }
};

}  // namespace cp_pool
