#include "worker/protocol/line_framer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "cases/parse_number.h"
#include "worker/protocol/messages.h"

namespace cp_pool::protocol {

// Whether the line may be a message. A line of responses may still become one while it is shorter than the prefix.
bool LineFramer::may_be_message() const {
  if (stream_ == Stream::requests) return true;
  if (stream_ == Stream::log) return false;
  const std::size_t n = std::min(line_.size(), kResponsePrefix.size());
  return std::string_view{line_}.substr(0, n) == kResponsePrefix.substr(0, n);
}

std::optional<Line> LineFramer::take_overflow() {
  const bool message = may_be_message();
  const std::size_t prefix = stream_ == Stream::responses ? kResponsePrefix.size() : 0;
  if (line_.size() <= (message ? kMaxLineBytes + prefix : kMaxChatterBytes)) return std::nullopt;
  skipping_ = true;
  Line line{message ? Line::Kind::over_long : Line::Kind::chatter, std::exchange(line_, {}), !message, line_number_};
  if (message) line.text.erase(0, prefix);
  line.text.resize(kMaxChatterBytes);
  return line;
}

Line LineFramer::take_line() {
  Line line{Line::Kind::chatter, std::exchange(line_, {}), false, line_number_};
  if (stream_ == Stream::requests) line.kind = Line::Kind::message;
  if (stream_ == Stream::responses && line.text.starts_with(kResponsePrefix)) {
    line.kind = Line::Kind::message;
    line.text.erase(0, kResponsePrefix.size());
  }
  return line;
}

std::vector<Line> LineFramer::feed(std::string_view bytes) {
  std::vector<Line> lines;
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    // Bytes are appended in steps, so that no more of a chatter line is collected than is kept.
    const std::size_t step = std::min({newline, bytes.size(), kMaxChatterBytes});
    if (!skipping_) {
      line_.append(bytes.substr(0, step));
      if (std::optional<Line> overflow = take_overflow()) lines.push_back(*std::move(overflow));
    }
    bytes.remove_prefix(step);
    line_bytes_ += step;
    if (step != newline) continue;
    bytes.remove_prefix(1);
    if (!std::exchange(skipping_, false) && !line_.empty()) lines.push_back(take_line());
    ++line_number_;
    line_bytes_ = 0;
  }
  return lines;
}

std::optional<Line> LineFramer::rest() {
  if (line_.empty()) return std::nullopt;
  Line line{Line::Kind::chatter, std::exchange(line_, {}), false, line_number_};
  line.cut = line.text.size() > kMaxChatterBytes;
  if (line.cut) line.text.resize(kMaxChatterBytes);
  return line;
}

std::optional<long long> parse_fence(std::string_view line) {
  if (!line.starts_with(kFencePrefix)) return std::nullopt;
  return parse_number<long long>(line.substr(kFencePrefix.size()));
}

std::string format_fence(long long seq) {
  return fmt::format("\n{}{}\n", kFencePrefix, seq);
}

}  // namespace cp_pool::protocol
