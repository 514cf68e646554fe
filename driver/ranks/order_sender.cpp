#include "driver/ranks/order_sender.h"

#include <algorithm>
#include <sys/socket.h>
#include <sys/types.h>

#include "worker/protocol/block_signals.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

namespace {

// Starts a thread that handles no signals, which are for the main thread.
template <typename Function>
std::jthread start_without_signals(Function function) {
  const BlockAllSignals block;
  return std::jthread(std::move(function));
}

}  // namespace

OrderSender::OrderSender(std::chrono::milliseconds beat_every)
    : beat_every_(beat_every),
      line_(lifeline::line_of(lifeline::Order{lifeline::Beat{}})),
      thread_(start_without_signals([this](const std::stop_token& stop) { beat(stop); })) {}

void OrderSender::add(int fd) {
  const std::lock_guard lock(mutex_);
  fds_.push_back(fd);
}

void OrderSender::remove(int fd) {
  const std::lock_guard lock(mutex_);
  std::erase(fds_, fd);
}

void OrderSender::send(int fd, std::string_view line) {
  const std::lock_guard lock(mutex_);
  write(fd, line);
}

void OrderSender::write(int fd, std::string_view line) {
  const ssize_t sent = ::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(line.size())) ::shutdown(fd, SHUT_RDWR);
}

void OrderSender::beat(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    stopped_.wait_for(lock, stop, beat_every_, [] { return false; });
    for (const int fd : fds_) write(fd, line_);
  }
}

}  // namespace cp_pool
