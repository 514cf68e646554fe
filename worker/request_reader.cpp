#include "worker/request_reader.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <string_view>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace cp_pool {

namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;

}  // namespace

RequestReader::RequestReader(int fd, Handlers handlers)
    : fd_(fd), wake_fd_(eventfd(0, EFD_CLOEXEC)), handlers_(std::move(handlers)) {
  if (wake_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::jthread([this] { serve(); });
}

RequestReader::~RequestReader() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  close(wake_fd_);
}

void RequestReader::serve() {
  protocol::LineFramer framer(protocol::LineFramer::Stream::requests);
  std::array<char, kReadBytes> buffer;
  for (;;) {
    std::array<pollfd, 2> ready{{{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}}};
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) break;
    if (ready[1].revents != 0) return;
    if (ready[0].revents == 0) continue;
    const ssize_t got = read(fd_, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    for (const protocol::Line& line : framer.feed(bytes)) handle(line);
  }
  handlers_.end_of_input();
}

void RequestReader::handle(const protocol::Line& line) {
  try {
    if (line.kind == protocol::Line::Kind::over_long) {
      throw protocol::ProtocolError(fmt::format("a request longer than {} bytes", protocol::kMaxLineBytes));
    }
    handlers_.request(protocol::parse_request(line.text));
  } catch (const protocol::ProtocolError& e) {
    handlers_.bad_request(e);
  }
}

}  // namespace cp_pool
