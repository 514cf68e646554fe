#include "driver/ranks/pipes.h"

#include <algorithm>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/write.hpp>

namespace cp_pool {

PipeReader::PipeReader(asio::io_context& io, UniqueFd fd, OnData on_data, OnEnd on_end)
    : pipe_(io, fd.release()), on_data_(std::move(on_data)), on_end_(std::move(on_end)) {}

void PipeReader::close() {
  asio::error_code ignored;  // closing a pipe that is only read loses nothing
  pipe_.close(ignored);
}

std::string PipeReader::take_available() {
  std::string out(buffer_.size(), '\0');
  const ssize_t size = pipe_.is_open() ? ::read(pipe_.native_handle(), out.data(), out.size()) : 0;
  out.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return out;
}

void PipeReader::read_next() {
  reading_ = true;
  pipe_.async_read_some(asio::buffer(buffer_), [self = shared_from_this()](asio::error_code error, std::size_t size) {
    if (!self->pipe_.is_open()) return;
    if (error) {
      self->on_end_(error == asio::error::eof ? std::error_code() : error);
      return;
    }
    self->on_data_({self->buffer_.data(), size});
    self->reading_ = false;
    if (self->pipe_.is_open() && !self->paused_) self->read_next();
  });
}

PipeWriter::PipeWriter(asio::io_context& io, UniqueFd fd, std::function<void()> on_change)
    : pipe_(io, fd.release()), on_change_(std::move(on_change)) {}

// Watches for the reader's end, because written bytes can be lost without an error of write(): the reader may close
// while they are in the pipe.
void PipeWriter::start() {
  wait_until_ready(pipe_, asio::posix::stream_descriptor::wait_error,
                   [self = shared_from_this()](asio::error_code error) {
                     if (!error && self->pipe_.is_open()) self->break_off();
                   });
}

void PipeWriter::break_off() {
  broken_ = true;
  on_change_();
}

void PipeWriter::write(std::string bytes) {
  if (broken_ || closing_) return;
  unwritten_ += bytes.size();
  queue_.push_back(std::move(bytes));
  if (queue_.size() == 1) write_next();
}

void PipeWriter::close_when_written() {
  closing_ = true;
  if (queue_.empty()) close();
}

void PipeWriter::close() {
  asio::error_code ignored;  // unwritten requests do not matter when the pool is given up
  pipe_.close(ignored);
}

void PipeWriter::write_next() {
  asio::async_write(pipe_, asio::buffer(queue_.front()),
                    [self = shared_from_this()](asio::error_code error, std::size_t /*size*/) {
                      if (!self->pipe_.is_open()) return;
                      self->unwritten_ -= self->queue_.front().size();
                      self->queue_.pop_front();
                      if (error) {
                        self->queue_.clear();
                        self->unwritten_ = 0;
                        return self->break_off();
                      }
                      self->on_change_();
                      if (!self->queue_.empty()) {
                        self->write_next();
                      } else if (self->closing_) {
                        self->close();
                      }
                    });
}

std::shared_ptr<asio::posix::stream_descriptor> watch_exit(asio::io_context& io, UniqueFd pidfd,
                                                           std::function<void()> on_exit) {
  auto out = std::make_shared<asio::posix::stream_descriptor>(io, pidfd.release());
  wait_until_ready(*out, asio::posix::stream_descriptor::wait_read,
                   [out, on_exit = std::move(on_exit)](asio::error_code error) {
                     if (!error && out->is_open()) on_exit();
                   });
  return out;
}

namespace {

using WaitType = asio::posix::descriptor_base::wait_type;

bool is_ready(int fd, WaitType what) {
  const auto events = what == WaitType::wait_read ? POLLIN : what == WaitType::wait_write ? POLLOUT : POLLPRI;
  // poll() reports POLLERR and POLLHUP whatever the events.
  pollfd now{.fd = fd, .events = static_cast<short>(events), .revents = 0};
  return ::poll(&now, 1, 0) != 0;
}

}  // namespace

void wait_until_ready(asio::posix::stream_descriptor& descriptor, WaitType what,
                      std::function<void(asio::error_code)> done) {
  descriptor.async_wait(what, [&descriptor, what, done = std::move(done)](asio::error_code error) mutable {
    if (!error && descriptor.is_open() && !is_ready(descriptor.native_handle(), what)) {
      return wait_until_ready(descriptor, what, std::move(done));
    }
    done(error);
  });
}

}  // namespace cp_pool
