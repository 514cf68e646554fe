// The driver's ends of a worker's pipes: read and written in the background, never blocking.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "driver/process/unique_fd.h"

namespace cp_pool {

// Kept alive by its pending read; after close() no function is called any more.
class PipeReader : public std::enable_shared_from_this<PipeReader> {
 public:
  struct Functions {
    std::function<void(std::string_view)> on_data;
    std::function<void(std::error_code)> on_end;  // end of file (no error) or a read error; once
  };
  PipeReader(asio::io_context& io, UniqueFd fd, Functions functions);
  void start();
  // Between the two nothing more is read than what is being read already.
  void pause() { paused_ = true; }
  void resume();
  // What is in the pipe now and nobody was told of, at most some KiB: for the last words of a process that has ended.
  std::string take_available();
  void close();

 private:
  void read_next();

  asio::posix::stream_descriptor pipe_;
  Functions functions_;
  bool paused_ = false;
  bool reading_ = false;
  std::array<char, 65536> buffer_{};
};

class PipeWriter : public std::enable_shared_from_this<PipeWriter> {
 public:
  // on_change: a write has ended, well or not, or the reader has closed its end.
  PipeWriter(asio::io_context& io, UniqueFd fd, std::function<void()> on_change);
  void start();
  void write(std::string bytes);
  void close_when_written();
  void close();
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] bool pending() const { return !queue_.empty(); }
  [[nodiscard]] std::size_t unwritten() const { return unwritten_; }  // bytes, as whole writes

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

// Tells once that a process has exited, through its pidfd.
class ExitWatcher : public std::enable_shared_from_this<ExitWatcher> {
 public:
  ExitWatcher(asio::io_context& io, UniqueFd pidfd, std::function<void()> on_exit);
  void start();
  void close();

 private:
  asio::posix::stream_descriptor pidfd_;
  std::function<void()> on_exit_;
};

}  // namespace cp_pool
