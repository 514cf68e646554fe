// Cleans foreign text (stderr, chatter, reasons, error texts) for showing and storing. Every report uses it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cp_pool::protocol {

// Every maximal invalid UTF-8 sequence becomes one U+FFFD (the Unicode standard's recommended practice).
std::string to_valid_utf8(std::string_view text);

enum class Ansi {
  escape,  // an escape sequence is shown like every other control character, e.g. \x1b[31m
  strip,   // escape sequences are removed
};

// Valid UTF-8; control characters other than newline and tab shown as \xNN (C1 and bidirectional controls as \u{NNNN}),
// "\r\n" as a newline, code points that XML forbids as U+FFFD.
std::string clean_text(std::string_view text, Ansi ansi = Ansi::escape);

// The first max_bytes of text at most, cut between two code points, the cut said at the end (within max_bytes).
std::string cut_text(std::string_view text, std::size_t max_bytes);

}  // namespace cp_pool::protocol
