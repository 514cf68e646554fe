#include "driver/cli/shell_words.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/option_kinds.h"
#include "driver/core/mapped.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

bool is_plain(char c) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@%=";
  return kPlain.find(c) != std::string_view::npos;
}

// True for a byte that a terminal would act on or hide.
bool is_hidden(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte >= 0x7f;
}

// People read and paste the line, so hidden bytes are written as octal escapes.
std::string spelled(std::string_view hidden) {
  std::string out = "\"$(printf '";
  for (const char c : hidden) out += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
  return out + "')\"";
}

std::string quoted(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
  if (protocol::clean_text(word) != word) {
    const auto hidden = std::ranges::find_if(word, is_hidden);
    const auto end = std::find_if_not(hidden, word.end(), is_hidden);
    const std::string before(word.begin(), hidden);
    const std::string after(end, word.end());
    return (before.empty() ? "" : quoted(before)) + spelled({hidden, end}) + (after.empty() ? "" : quoted(after));
  }
  return fmt::format("'{}'", fmt::join(split(word, '\''), R"('\'')"));
}

}  // namespace

std::string shell_line(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(mapped(words, quoted), " "));
}

std::optional<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    // Inside ".." a backslash quotes only what is special there.
    const bool escapes =
        c == '\\' && i + 1 < line.size() &&
        (quote == 0 || (quote == '"' && std::string_view{"\"\\$`"}.find(line[i + 1]) != std::string_view::npos));
    if (escapes) {
      words.back() += line[++i];
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return std::nullopt;
  return words;
}

}  // namespace cp_pool
