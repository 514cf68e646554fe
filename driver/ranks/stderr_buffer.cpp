#include "driver/ranks/stderr_buffer.h"

#include <algorithm>
#include <utility>

#include "cases/utf8.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

// The last max_bytes of the text, without a partial UTF-8 sequence at the beginning.
std::string_view last_bytes(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  text.remove_prefix(text.size() - max_bytes);
  for (int i = 0; i < 3 && !text.empty() && !starts_code_point(text.front()); ++i) {
    text.remove_prefix(1);
  }
  return text;
}

// Whether the line belongs to a stack trace as LibTorch, glibc and our worker write it after the message.
bool is_of_a_stack(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with("frame #") || line.starts_with("Exception raised from ")) return true;
  if (line.find(")[0x") != std::string_view::npos && line.ends_with(']')) return true;
  return line.starts_with('#') && line.find_first_not_of("0123456789", 1) > 1 &&
         (line.find(" in /") != std::string_view::npos || line.find(" at /") != std::string_view::npos);
}

}  // namespace

void StderrBuffer::feed(std::string_view bytes) {
  for (const protocol::Line& line : framer_.feed(bytes)) {
    const auto seq = protocol::parse_fence(line.text);
    if (!seq) {
      take_line(line.text);
    } else if (*seq == seq_) {
      fence_seen_ = ++fences_ >= writers_;
    } else if (*seq < seq_) {
      lines_.clear();
      foreign_ = false;
    }
  }
}

void StderrBuffer::close() {
  take_partial_line();
  reopen();
  closed_ = true;
}

void StderrBuffer::reopen() {
  reopened_ = true;
  for (std::string& line : std::exchange(later_lines_, {})) keep(std::move(line));
}

void StderrBuffer::begin_case(std::int64_t seq) {
  foreign_ = seq_ != 0 && !fence_seen_;
  later_lines_.clear();
  if (!foreign_) lines_.clear();
  seq_ = seq;
  fences_ = 0;
  fence_seen_ = false;
  reopened_ = false;
}

void StderrBuffer::take_line(std::string_view line) {
  const std::string_view kept = last_bytes(line, kTailBytes);
  if (!kept.empty() && !is_of_a_stack(line)) last_line_ = kept;
  keep(std::string(kept));
}

void StderrBuffer::keep(std::string line) {
  std::deque<std::string>& lines = fence_seen_ && !reopened_ ? later_lines_ : lines_;
  lines.push_back(std::move(line));
  if (lines.size() > kTailLines) lines.pop_front();
}

StderrTail StderrBuffer::tail() {
  take_partial_line();
  std::string text;
  for (const std::string& line : lines_) {
    text += line;
    text += '\n';
  }
  return {.rank = rank_, .text = protocol::clean_text(last_bytes(text, kTailBytes)), .fenced = complete() && !foreign_};
}

std::string StderrBuffer::last_line() {
  take_partial_line();
  return protocol::clean_text(last_line_);
}

}  // namespace cp_pool
