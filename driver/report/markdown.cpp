#include "driver/report/markdown.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

namespace cp_pool {

namespace {

// Returns the length of the longest run of `c`.
std::size_t longest_run(std::string_view text, char c) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (const char each : text) {
    run = each == c ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

std::string as_one_line(std::string_view text) {
  std::string out{text};
  std::ranges::replace_if(out, [](char c) { return c == '\n' || c == '\t' || c == '\r'; }, ' ');
  return out;
}

}  // namespace

std::string markdown_text(std::string_view text) {
  const std::string line = as_one_line(text);
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
  std::string line = as_one_line(text);
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
  for (const char c : as_one_line(text)) {
    if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'' || c == '@') {
      out += fmt::format("&#{};", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace cp_pool
