// One end of a connection between a client and a service. It reads and writes lines in the background and never blocks.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <asio/io_context.hpp>

#include "cases/unique_fd.h"
#include "driver/ranks/pipes.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool::service {

class LineConnection {
 public:
  struct Functions {
    std::function<void(const protocol::Line&)> on_line;
    std::function<void()> on_end;              // called once, when nothing more can be read
    std::function<void()> on_lost = [] {};     // called once, when the other side is gone
    std::function<void()> on_written = [] {};  // called when fewer bytes wait to be written
  };
  // in and out may be two descriptors of one socket. The functions may call the connection, but must not destroy it.
  LineConnection(asio::io_context& io, UniqueFd in, UniqueFd out, Functions functions);
  LineConnection(const LineConnection&) = delete;
  LineConnection& operator=(const LineConnection&) = delete;
  ~LineConnection() { close(); }

  // already_read: bytes of the connection that were read before.
  void start(std::string_view already_read = {});
  void write(std::string line) { writer_->write(std::move(line)); }
  // Number of bytes that the other side has not accepted.
  [[nodiscard]] std::size_t unwritten() const { return writer_->unwritten(); }
  // Between pause() and resume(), on_line is not called, and little is read.
  void pause();
  [[nodiscard]] bool paused() const { return paused_; }
  void resume();
  // Closes when everything is written.
  void close_when_written() { writer_->close_when_written(); }
  void close();

 private:
  void on_data(std::string_view bytes);
  void deliver_lines();

  Functions functions_;
  std::shared_ptr<PipeReader> reader_;
  std::shared_ptr<PipeWriter> writer_;
  protocol::LineFramer framer_{protocol::LineFramer::Stream::requests};
  std::deque<protocol::Line> lines_;  // lines that were read and not yet passed to on_line
  bool paused_ = false;
  bool ended_ = false;  // nothing more can be read
  bool told_end_ = false;
  bool lost_ = false;
};

}  // namespace cp_pool::service
