#include "worker/pending_operation.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace cp_pool {

namespace {

// A text that one thread sets and a signal handler reads.
template <std::size_t Capacity>
class SharedText {
 public:
  void set(std::string_view text) noexcept {
    const std::size_t size = std::min(text.size(), Capacity);
    size_.store(0, std::memory_order_release);
    std::copy_n(text.data(), size, bytes_.data());
    size_.store(size, std::memory_order_release);
  }
  [[nodiscard]] std::string_view get() const noexcept { return {bytes_.data(), size_.load(std::memory_order_acquire)}; }

 private:
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

void clear_pending_operation() noexcept {
  operation.set({});
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

}  // namespace cp_pool
