#include "cases/file_reader.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/case_error.h"

namespace cp_pool {
namespace {

constexpr std::size_t kBlock = std::size_t{64} << 10U;
constexpr int kPatienceMs = 1000;  // how long a pipe may have no data before stderr says so

[[noreturn]] void fail(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

void print_awaited_input(std::string_view what) {
  const std::string line = fmt::format("{}: waiting for {}\n", ::program_invocation_short_name, what);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

// O_NONBLOCK keeps the opening of a FIFO from waiting for its writer, where nothing would say so on stderr.
FileReader::FileReader(const std::string& path, std::size_t most)
    : path_(path), most_(most), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {
  if (!fd_) fail(path);
  struct stat status{};
  may_wait_ = ::fstat(fd_.get(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

void FileReader::wait_for_data() {
  pollfd ready{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  const bool terminal = ::isatty(fd_.get()) == 1;
  const auto poll_for = [&](int ms) { return ::poll(&ready, 1, ms); };
  if (!has_waited_ && poll_for(terminal ? 0 : kPatienceMs) == 0) {
    print_awaited_input(terminal ? fmt::format("input from the terminal {}; Ctrl-D ends it", path_)
                                 : fmt::format("data from {}", path_));
    has_waited_ = true;
  }
  while (poll_for(-1) < 0) {
    if (errno != EINTR) fail(path_);
  }
}

std::size_t FileReader::read(std::span<char> into) {
  for (;;) {
    if (may_wait_) wait_for_data();
    const ssize_t bytes = ::read(fd_.get(), into.data(), into.size());
    if (bytes >= 0) return static_cast<std::size_t>(bytes);
    if (errno != EINTR && errno != EAGAIN) fail(path_);
  }
}

std::string FileReader::read_all() {
  std::string text;
  std::array<char, kBlock> block{};
  for (std::size_t bytes = 0; (bytes = read(block)) > 0;) {
    text.append(block.data(), bytes);
    if (text.size() <= most_) continue;
    throw CaseError(fmt::format("{}: larger than {} MiB, the limit for a matrix or case", path_, most_ >> 20U));
  }
  return text;
}

bool FileReader::read_line(std::string& line) {
  line.clear();
  ++line_number_;
  for (;;) {
    const std::size_t newline = rest_.find('\n', rest_begin_);
    line.append(rest_, rest_begin_, newline - rest_begin_);  // all of it, if newline is npos
    line_was_cut_ = newline == std::string::npos;
    if (!line_was_cut_) {
      rest_begin_ = newline + 1;
      return true;
    }
    if (line.size() > most_) {
      throw CaseError(fmt::format("line {} has more than {} MiB", line_number_, most_ >> 20U));
    }
    rest_.resize(kBlock);
    rest_.resize(read({rest_.data(), rest_.size()}));
    rest_begin_ = 0;
    if (rest_.empty()) return !line.empty();
  }
}

}  // namespace cp_pool
