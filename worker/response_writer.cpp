#include "worker/response_writer.h"

#include <cerrno>
#include <string>
#include <string_view>
#include <unistd.h>
#include <variant>

#include <fmt/format.h>

namespace cp_pool {

namespace {

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void write_response(int fd, const protocol::Event& event, const std::function<void()>& half_way) {
  std::string text = protocol::format_response(event);
  const auto* const result = std::get_if<protocol::ResultEvent>(&event);
  if (text.size() > protocol::kMaxLineBytes && result != nullptr) {
    protocol::ResultEvent shorter = *result;
    shorter.checks.clear();
    shorter.reason += fmt::format(" ({} checks left out: the result had {} bytes)", result->checks.size(), text.size());
    text = protocol::format_response(shorter);
  }
  if (!half_way) return write_all(fd, text);
  const std::size_t half = text.size() / 2;
  write_all(fd, std::string_view{text}.substr(0, half));
  half_way();
  write_all(fd, std::string_view{text}.substr(half));
}

}  // namespace cp_pool
