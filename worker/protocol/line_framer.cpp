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

// Takes what has come of the line: a message without its prefix, and no more than is kept of another line.
Line LineFramer::take(Line::Kind kind) {
  Line line{kind, std::exchange(line_, {}), false, line_number_};
  if (kind != Line::Kind::chatter && stream_ == Stream::responses) line.text.erase(0, kResponsePrefix.size());
  if (kind == Line::Kind::message || line.text.size() <= kMaxChatterBytes) return line;
  line.cut = kind == Line::Kind::chatter;
  line.text.resize(kMaxChatterBytes);
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
      const bool message = may_be_message();
      const std::size_t prefix = stream_ == Stream::responses ? kResponsePrefix.size() : 0;
      skipping_ = line_.size() > (message ? kMaxLineBytes + prefix : kMaxChatterBytes);
      if (skipping_) lines.push_back(take(message ? Line::Kind::over_long : Line::Kind::chatter));
    }
    bytes.remove_prefix(step);
    line_bytes_ += step;
    if (step != newline) continue;
    bytes.remove_prefix(1);
    const bool message =
        stream_ == Stream::requests || (stream_ == Stream::responses && line_.starts_with(kResponsePrefix));
    if (!std::exchange(skipping_, false) && !line_.empty()) {
      lines.push_back(take(message ? Line::Kind::message : Line::Kind::chatter));
    }
    ++line_number_;
    line_bytes_ = 0;
  }
  return lines;
}

std::optional<Line> LineFramer::rest() {
  if (line_.empty()) return std::nullopt;
  return take(Line::Kind::chatter);
}

std::optional<long long> parse_fence(std::string_view line) {
  if (!line.starts_with(kFencePrefix)) return std::nullopt;
  return parse_number<long long>(line.substr(kFencePrefix.size()));
}

std::string format_fence(long long seq) {
  return fmt::format("\n{}{}\n", kFencePrefix, seq);
}

}  // namespace cp_pool::protocol
