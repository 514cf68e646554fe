#include "worker/pending_operation.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

namespace cp_pool {

namespace {

using Clock = std::chrono::steady_clock;

// A text that one thread sets and a signal handler reads without a lock. Other threads copy it under the lock.
template <std::size_t Capacity>
class SharedText {
 public:
  void set(std::string_view text) noexcept {
    const std::size_t size = std::min(text.size(), Capacity);
    const std::lock_guard lock(mutex_);
    since_ = Clock::now();
    size_.store(0, std::memory_order_release);
    std::copy_n(text.data(), size, bytes_.data());
    size_.store(size, std::memory_order_release);
  }
  [[nodiscard]] std::string_view get() const noexcept { return {bytes_.data(), size_.load(std::memory_order_acquire)}; }

  // Returns the text and the milliseconds since it was set.
  [[nodiscard]] std::pair<std::string, double> copy() const {
    const std::lock_guard lock(mutex_);
    return {std::string(get()), std::chrono::duration<double, std::milli>(Clock::now() - since_).count()};
  }

 private:
  mutable std::mutex mutex_;
  Clock::time_point since_;
  std::array<char, Capacity> bytes_{};
  std::atomic<std::size_t> size_{0};
  static_assert(std::atomic<std::size_t>::is_always_lock_free);
};

constexpr std::size_t kMaxPhaseBytes = 32;

SharedText<kMaxPendingBytes> operation;
SharedText<kMaxPhaseBytes> phase;

}  // namespace

void set_pending_operation(std::string_view text) noexcept {
  operation.set(text);
}

std::string_view pending_operation() noexcept {
  return operation.get();
}

void set_current_phase(std::string_view name) noexcept {
  phase.set(name);
}

std::string_view current_phase() noexcept {
  return phase.get();
}

protocol::RankPhase current_rank_phase(int rank) {
  protocol::RankPhase out;
  out.rank = rank;
  std::tie(out.phase, out.ms) = phase.copy();
  std::tie(out.operation, out.operation_ms) = operation.copy();
  if (out.operation.empty()) out.operation_ms = 0;
  return out;
}

}  // namespace cp_pool
