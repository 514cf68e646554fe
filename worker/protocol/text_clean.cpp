#include "worker/protocol/text_clean.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "cases/utf8.h"

namespace cp_pool::protocol {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return static_cast<std::uint8_t>(text[i]);
}

struct Decoded {
  std::size_t length = 1;  // bytes taken
  char32_t code_point = 0;
  bool valid = false;
};

// Decodes the code point at text[i], or the maximal invalid sequence there (Unicode 15, table 3-7).
Decoded decode(std::string_view text, std::size_t i) {
  const std::uint8_t lead = byte_at(text, i);
  if (lead < 0x80) return {1, lead, true};
  std::size_t trailing = 0;
  std::uint8_t low = 0x80;  // the range of the second byte excludes overlong forms, surrogates and > U+10FFFF
  std::uint8_t high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    trailing = 1;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    trailing = 2;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    trailing = 3;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return {};
  }
  char32_t code_point = lead & (0x3fU >> trailing);
  for (std::size_t k = 1; k <= trailing; ++k) {
    if (i + k >= text.size()) return {k, 0, false};
    const std::uint8_t byte = byte_at(text, i + k);
    if (byte < low || byte > high) return {k, 0, false};
    low = 0x80;
    high = 0xbf;
    code_point = (code_point << 6U) | (byte & 0x3fU);
  }
  return {trailing + 1, code_point, true};
}

bool is_bidi_control(char32_t c) {
  return c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void append_clean(std::string& out, char32_t c, std::string_view bytes) {
  if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
    out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
  } else if ((c >= 0x80 && c <= 0x9f) || is_bidi_control(c)) {
    out += fmt::format("\\u{{{:04x}}}", static_cast<unsigned>(c));
  } else if ((c & 0xfffeU) == 0xfffe) {
    out += kReplacement;
  } else {
    out += bytes;
  }
}

}  // namespace

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Decoded d = decode(text, i);
    out += d.valid ? text.substr(i, d.length) : kReplacement;
    i += d.length;
  }
  return out;
}

std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') {
      ++i;
      continue;
    }
    const Decoded d = decode(text, i);
    if (d.valid) {
      append_clean(out, d.code_point, text.substr(i, d.length));
    } else {
      out += kReplacement;
    }
    i += d.length;
  }
  return out;
}

std::string cut_text(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return std::string{text};
  const std::string mark = fmt::format("\n[cut: {} bytes in all]", text.size());
  std::size_t keep = max_bytes - std::min(max_bytes, mark.size());
  while (keep > 0 && !starts_code_point(text[keep])) --keep;
  constexpr std::size_t kLongestWord = 64;
  const std::size_t blank = text.find_last_of(" \t\n", keep);
  if (blank != std::string_view::npos && blank > 0 && keep - blank <= kLongestWord) keep = blank;
  return std::string{text.substr(0, keep)} + mark.substr(0, max_bytes - keep);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    lines.push_back(first_line(text));
    text.remove_prefix(std::min(lines.back().size() + 1, text.size()));
  }
  return lines;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

std::string_view last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace cp_pool::protocol
