#include "worker/pending_operation.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace cp_pool {

namespace {

std::array<char, kMaxPendingBytes> text_bytes;
std::atomic<std::size_t> text_size{0};
static_assert(std::atomic<std::size_t>::is_always_lock_free);

}  // namespace

void set_pending_operation(std::string_view text) noexcept {
  const std::size_t size = std::min(text.size(), kMaxPendingBytes);
  text_size.store(0, std::memory_order_release);
  std::copy_n(text.data(), size, text_bytes.data());
  text_size.store(size, std::memory_order_release);
}

void clear_pending_operation() noexcept {
  text_size.store(0, std::memory_order_release);
}

std::string_view pending_operation() noexcept {
  return {text_bytes.data(), text_size.load(std::memory_order_acquire)};
}

}  // namespace cp_pool
