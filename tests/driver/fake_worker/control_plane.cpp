#include "tests/driver/fake_worker/control_plane.h"

#include <arpa/inet.h>
#include <array>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/driver/fake_worker/faults.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool::fake {

std::optional<std::string> LineReader::next() {
  std::array<char, 65536> bytes{};
  std::size_t searched = 0;
  for (;;) {
    if (const std::size_t end = buffer_.find('\n', searched); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const ssize_t n = TEMP_FAILURE_RETRY(::read(fd_, bytes.data(), bytes.size()));
    if (n <= 0) return std::nullopt;
    searched = buffer_.size();
    buffer_.append(bytes.data(), static_cast<std::size_t>(n));
  }
}

Ranks::Ranks(const protocol::RankEnvironment& environment) {
  const auto others = static_cast<std::size_t>(environment.world_size - 1);
  sockets_.resize(others);
  pids_.resize(others, -1);
  for (std::size_t i = 0; i < others; ++i) {
    LineReader socket(::accept4(*environment.master_fd, nullptr, nullptr, SOCK_CLOEXEC));
    const auto first = socket.next();
    if (!first) _exit(10);
    const auto rank = std::strtoul(first->c_str(), nullptr, 10);
    sockets_.at(rank - 1) = socket;
    pids_.at(rank - 1) = static_cast<int>(std::strtol(first->c_str() + first->find(' '), nullptr, 10));
  }
}

void Ranks::tell(int rank, const std::string& what) {
  LineReader& socket = sockets_.at(static_cast<std::size_t>(rank - 1));
  if (::send(socket.fd(), (what + '\n').data(), what.size() + 1, MSG_NOSIGNAL) < 0 || !socket.next()) hang();
}

void serve_rank_zero(const protocol::RankEnvironment& environment) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(environment.master_port);
  ::inet_pton(AF_INET, environment.master_addr.c_str(), &address.sin_addr);
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) _exit(11);
  write_all(socket, fmt::format("{} {}\n", environment.rank, ::getpid()));
  LineReader orders(socket);
  while (const auto order = orders.next()) {
    if (order->starts_with("fence ")) {
      write_all(STDERR_FILENO, protocol::format_fence(std::strtoll(order->c_str() + 6, nullptr, 10)));
    } else if (order->starts_with("say ")) {
      write_all(STDERR_FILENO, order->substr(4) + '\n');
    } else if (!commit_fault(*order)) {
      _exit(12);
    }
    write_all(socket, "done\n");
  }
  _exit(0);
}

}  // namespace cp_pool::fake
