#include "cp_core/comm/local/local_hub.h"

#include <array>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace cp_pool {
namespace {

thread_local std::mutex* turn = nullptr;  // the mutex of this thread's LocalTurn

}  // namespace

c10::Stream current_stream(const at::Device& device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

StreamMark::StreamMark(const at::Device& device) {
  if (device.is_cuda()) event_.emplace(device.type()).record(current_stream(device));
}

void StreamMark::order_current_stream() const {
  if (event_) event_->block(current_stream(event_->device()));
}

LocalTurn::LocalTurn(std::mutex* mutex) {
  turn = mutex;
  if (turn != nullptr) turn->lock();
}

LocalTurn::~LocalTurn() {
  if (turn != nullptr) turn->unlock();
  turn = nullptr;
}

LocalTurn::Rest::Rest() {
  if (turn != nullptr) turn->unlock();
}

LocalTurn::Rest::~Rest() {
  if (turn != nullptr) turn->lock();
}

std::string_view LocalHub::name_of(Operation operation) {
  static constexpr std::array kNames{"exchange",   "all_gather", "reduce_scatter",
                                     "all_reduce", "put_all",    "checked_barrier"};
  return kNames.at(static_cast<std::size_t>(operation));
}

void LocalHub::post(const Address& address, Message message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.insert_or_assign(address, std::move(message));
  }
  arrived_.notify_all();
}

std::optional<LocalHub::Message> LocalHub::take(const Address& address, Clock::time_point deadline) {
  const LocalTurn::Rest rest;  // declared first, so that it ends after the lock is released
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return aborted_ || messages_.contains(address); };
  const bool in_time = arrived_.wait_until(lock, deadline, ready);
  throw_if_aborted();
  if (!in_time) return std::nullopt;
  return std::move(messages_.extract(address).mapped());
}

void LocalHub::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  arrived_.notify_all();
}

void LocalHub::check_not_aborted() {
  const std::lock_guard lock(mutex_);
  throw_if_aborted();
}

void LocalHub::throw_if_aborted() const {
  if (aborted_) throw CommError(CommError::Kind::aborted, "the communicator was aborted");
}

}  // namespace cp_pool
