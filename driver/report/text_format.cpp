#include "driver/report/text_format.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ranges>

#include <fmt/format.h>

#include "cases/utf8.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kMinute = 60;
constexpr std::int64_t kHour = 3600;

std::size_t longest_run(std::string_view text, char c) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char each : text) {
    run = each == c ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace

std::string format_duration(double milliseconds) {
  if (milliseconds < 9.95) return fmt::format("{:.1f} ms", milliseconds);
  if (milliseconds < 999.5) return fmt::format("{:.0f} ms", milliseconds);
  const double seconds = milliseconds / 1000;
  if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < kHour) return fmt::format("{} m {:02} s", whole / kMinute, whole % kMinute);
  return fmt::format("{} h {:02} m", whole / kHour, whole % kHour / kMinute);
}

std::string format_clock(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(seconds));
  if (whole < kHour) return fmt::format("{}:{:02}", whole / kMinute, whole % kMinute);
  return fmt::format("{}:{:02}:{:02}", whole / kHour, whole % kHour / kMinute, whole % kMinute);
}

std::string format_figure(double value) {
  return fmt::format("{:.3g}", value);
}

std::string count_of(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, starts_code_point));
}

std::string cut_middle(std::string_view text, std::size_t count) {
  constexpr std::string_view kGap = "..";
  const std::size_t columns = width_of(text);
  if (columns <= count) return std::string{text};
  const std::size_t gap = text.find(' ') == std::string_view::npos ? kGap.size() : kGap.size() + 2;
  if (count <= gap) return clip(text, count);
  const std::size_t shown = count - gap;
  const std::size_t begin = clip(text, shown * 2 / 5).size();
  const std::size_t end = clip(text, columns - (shown - shown * 2 / 5)).size();
  // A blank beside a piece also ends the piece, so that a word which just fits stays.
  const std::size_t before = text.rfind(' ', begin);
  const std::size_t after = text.find(' ', end - 1);
  const std::string_view head = text.substr(0, before == std::string_view::npos ? begin : before + 1);
  return fmt::format("{}{}{}", head, kGap, text.substr(after == std::string_view::npos ? end : after));
}

std::string clip(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  for (std::size_t used = 0; end < text.size(); ++end) {
    if (starts_code_point(text[end]) && used++ == count) break;
  }
  return std::string{text.substr(0, end)};
}

std::string on_one_line(std::string_view text) {
  std::string out{text};
  std::ranges::replace_if(out, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return out;
}

std::string prefix_lines(std::string_view text, std::string_view prefix) {
  std::string out;
  for (const std::string_view line : protocol::lines_of(text)) out += fmt::format("{}{}\n", prefix, line);
  return out;
}

std::string first_lines(const std::vector<std::string>& lines, std::size_t most, std::string_view indent) {
  std::string out;
  for (const std::string& line : lines | std::views::take(most)) out += fmt::format("{}{}\n", indent, line);
  return lines.size() <= most ? out : out + fmt::format("{}and {} more\n", indent, lines.size() - most);
}

std::string markdown_text(std::string_view text) {
  const std::string line = on_one_line(text);
  // "1." and "-" are markup only at the beginning of a block, a colon only in the scheme of a URL.
  const std::size_t number_end = line.find_first_not_of("0123456789");
  const auto begins_list = [&](std::size_t at) {
    return at == number_end && std::string_view{at == 0 ? "-+=" : ".)"}.find(line[at]) != std::string_view::npos;
  };
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (std::string_view{"<>&@"}.find(c) != std::string_view::npos) {
      out += fmt::format("&#{};", static_cast<int>(c));  // '@' has no other escape
      continue;
    }
    const bool markup = std::string_view{"\\`*_{}[]#|~"}.find(c) != std::string_view::npos;
    if (markup || begins_list(i) || line.compare(i, 3, "://") == 0) out += '\\';
    out += c;
  }
  return out;
}

std::string markdown_code(std::string_view text) {
  if (text.empty()) return "";
  std::string line = on_one_line(text);
  // A bar ends a cell even in code, unless it is escaped.
  for (std::size_t at = 0; (at = line.find('|', at)) != std::string::npos; at += 2) line.insert(at, 1, '\\');
  const std::string fence(longest_run(line, '`') + 1, '`');
  const bool padded = line.starts_with('`') || line.ends_with('`') || line.starts_with(' ') || line.ends_with(' ');
  return fmt::format("{}{}{}{}{}", fence, padded ? " " : "", line, padded ? " " : "", fence);
}

std::string markdown_block(std::string_view text) {
  const std::string fence(std::max<std::size_t>(3, longest_run(text, '`') + 1), '`');
  return fmt::format("{}text\n{}{}{}\n", fence, text, text.empty() || text.ends_with('\n') ? "" : "\n", fence);
}

std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char c : on_one_line(text)) {
    const bool special = std::string_view{"<>&\"'@"}.find(c) != std::string_view::npos;
    out += special ? fmt::format("&#{};", static_cast<int>(c)) : std::string(1, c);
  }
  return out;
}

}  // namespace cp_pool
