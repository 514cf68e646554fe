// The phase of the case that the computing thread is in, and the communication that it waits in, readable from a signal
// handler and from other threads. There is one of each in a process, since a signal handler can reach global state
// only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace cp_pool {

inline constexpr std::size_t kMaxPendingBytes = 256;

// Cut at kMaxPendingBytes. Called by the computing thread only.
void set_pending_operation(std::string_view text) noexcept;
void clear_pending_operation() noexcept;

// Async-signal-safe. The text lives in static storage; it may be torn if the computing thread runs meanwhile. Empty if
// the thread is in no communication.
std::string_view pending_operation() noexcept;

// What the rank is doing: "start", "idle", or a phase of the case ("forward"). Likewise.
void set_current_phase(std::string_view name) noexcept;
std::string_view current_phase() noexcept;

// For other threads: where the computing thread stands, whole, and for how long.
struct Standing {
  std::string phase;
  std::chrono::steady_clock::duration in_phase{};
  std::string operation;  // empty: the thread is in no communication
  std::chrono::steady_clock::duration in_operation{};
};
Standing current_standing();

// Sets the text for as long as it lives.
class PendingOperationGuard {
 public:
  explicit PendingOperationGuard(std::string_view text) noexcept { set_pending_operation(text); }
  PendingOperationGuard(const PendingOperationGuard&) = delete;
  PendingOperationGuard& operator=(const PendingOperationGuard&) = delete;
  ~PendingOperationGuard() { clear_pending_operation(); }
};

}  // namespace cp_pool
