// The driver's ends of a worker's pipes. They are read and written in the background and never block.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <asio/error_code.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "cases/unique_fd.h"

namespace cp_pool {

// A pending read keeps the object alive. After close() no function is called any more.
class PipeReader : public std::enable_shared_from_this<PipeReader> {
 public:
  using OnData = std::function<void(std::string_view)>;
  using OnEnd = std::function<void(std::error_code)>;
  // on_end: is called once, at end of file (no error) or at a read error.
  PipeReader(asio::io_context& io, UniqueFd fd, OnData on_data, OnEnd on_end);
  void start() { read_next(); }
  // Between pause() and resume(), only a read that has already begun is finished.
  void pause() { paused_ = true; }
  void resume() {
    paused_ = false;
    if (!reading_ && pipe_.is_open()) read_next();
  }
  // Returns the bytes that are in the pipe now and were not passed to on_data, at most 64 KiB: the last words of a
  // process that has ended.
  std::string take_available();
  void close();

 private:
  void read_next();

  asio::posix::stream_descriptor pipe_;
  OnData on_data_;
  OnEnd on_end_;
  bool paused_ = false;
  bool reading_ = false;
  std::array<char, 65536> buffer_{};
};

class PipeWriter : public std::enable_shared_from_this<PipeWriter> {
 public:
  // on_change: is called when a write has ended or failed, and when the reader has closed its end.
  PipeWriter(asio::io_context& io, UniqueFd fd, std::function<void()> on_change);
  void start();
  void write(std::string bytes);
  void close_when_written();
  void close();
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] bool pending() const { return !queue_.empty(); }
  [[nodiscard]] std::size_t unwritten() const { return unwritten_; }  // in bytes; a write counts whole until it is done

 private:
  void write_next();
  void break_off();

  asio::posix::stream_descriptor pipe_;
  std::function<void()> on_change_;
  std::deque<std::string> queue_;
  std::size_t unwritten_ = 0;
  bool broken_ = false;
  bool closing_ = false;
};

// Calls on_exit once when the process of the pidfd has exited, unless the descriptor that it returns is closed before.
std::shared_ptr<asio::posix::stream_descriptor> watch_exit(asio::io_context& io, UniqueFd pidfd,
                                                           std::function<void()> on_exit);

// Calls `done` when `descriptor` is ready for `what`, or with the error of a wait that was cancelled. Asio's own
// async_wait may end too early: while Asio handles a batch of events, a newly registered descriptor can take the place
// of one that was closed in the same batch, and then gets the events of that one (asio/detail/impl/epoll_reactor.ipp).
// A read or write then finds nothing and waits on, but a wait would be taken for real. `done` must keep the owner of
// `descriptor` alive.
void wait_until_ready(asio::posix::stream_descriptor& descriptor, asio::posix::descriptor_base::wait_type what,
                      std::function<void(asio::error_code)> done);

}  // namespace cp_pool
