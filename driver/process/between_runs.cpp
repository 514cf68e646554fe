#include "driver/process/between_runs.h"

#include <csignal>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "driver/process/process_settings.h"

namespace cp_pool {

// Every signal set of Asio gets every signal, so those of a Runner take no signal away from this one.
struct BetweenRuns::Loop {
  asio::io_context io{1};
  asio::signal_set signals{io, SIGINT, SIGTERM};
  bool signalled = false;
};

BetweenRuns::BetweenRuns() : loop_(std::make_unique<Loop>()) {
  watch_for_hangup(loop_->signals);
  loop_->signals.async_wait([loop = loop_.get()](asio::error_code error, int /*signal*/) {
    if (!error) loop->signalled = true;
  });
}

BetweenRuns::~BetweenRuns() = default;

bool BetweenRuns::wait(int fd, std::chrono::milliseconds limit) {
  asio::io_context& io = loop_->io;
  io.restart();
  io.poll();  // signals that have arrived
  if (loop_->signalled) return true;
  bool over = false;
  const auto end = [&over](asio::error_code /*error*/) { over = true; };
  asio::steady_timer timer{io, limit};
  timer.async_wait(end);
  asio::posix::stream_descriptor readable{io};
  if (fd >= 0) {
    readable.assign(fd);
    readable.async_wait(asio::posix::stream_descriptor::wait_read, end);
  }
  while (!over && !loop_->signalled) io.run_one();
  timer.cancel();
  if (fd >= 0) readable.release();
  io.poll();  // runs the cancelled handlers, which refer to local variables
  return loop_->signalled;
}

}  // namespace cp_pool
