// One end of a connection between a client and a service: lines in, lines out, in the background, never blocking.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>

#include "driver/pool/pipes.h"
#include "driver/process/unique_fd.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool::service {

class LineConnection {
 public:
  struct Functions {
    std::function<void(const protocol::Line&)> on_line;
    std::function<void()> on_end;      // nothing more can be read; once
    std::function<void()> on_lost;     // the other side is gone; once
    std::function<void()> on_written;  // fewer bytes wait to be written
  };
  // in and out may be two descriptors of one socket. What a function does to the connection must not destroy it.
  LineConnection(asio::io_context& io, UniqueFd in, UniqueFd out, Functions functions);
  LineConnection(const LineConnection&) = delete;
  LineConnection& operator=(const LineConnection&) = delete;
  ~LineConnection();

  // already_read: bytes that came before.
  void start(std::string_view already_read = {});
  void write(std::string line);
  // How many bytes the other side has not taken.
  [[nodiscard]] std::size_t unwritten() const { return writer_->unwritten(); }
  // Between the two no further line is told, and little is read.
  void pause();
  [[nodiscard]] bool paused() const { return paused_; }
  void resume();
  // Closes when everything is written.
  void close_when_written() { writer_->close_when_written(); }
  void close();

 private:
  void on_data(std::string_view bytes);
  void tell_lines();

  Functions functions_;
  std::shared_ptr<PipeReader> reader_;
  std::shared_ptr<PipeWriter> writer_;
  protocol::LineFramer framer_{protocol::LineFramer::Stream::requests};
  std::deque<protocol::Line> lines_;  // that were read, and not told
  bool paused_ = false;
  bool ended_ = false;  // for reading
  bool told_end_ = false;
  bool lost_ = false;
};

}  // namespace cp_pool::service
