// Cleans foreign text for showing and storing. Text is cleaned once, where it enters; code behind that point takes it
// as it is. The entrances are:
//   parse_event           texts of a worker's messages
//   read_events           texts of an events file
//   StderrRing            stderr
//   WorkerGroup           lines of stdout that are no message
//   with_names            names from debug information
//   report_error          the command line and input files, as errors quote them
//   Runner                the title of a run, and its baseline
// IDs with such characters are refused (submitted_case.cpp), and commands to paste spell them (shell_words.cpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace cp_pool::protocol {

// Every maximal invalid UTF-8 sequence becomes one U+FFFD (the Unicode standard's recommended practice).
std::string to_valid_utf8(std::string_view text);

// Valid UTF-8; control characters other than newline and tab shown as \xNN (C1 and bidirectional controls as \u{NNNN}),
// "\r\n" as a newline, code points that XML forbids as U+FFFD. Clean text stays as it is.
std::string clean_text(std::string_view text);

// The first max_bytes of text at most, cut between two code points, the cut said at the end (within max_bytes).
std::string cut_text(std::string_view text, std::size_t max_bytes);

// Up to the first newline.
std::string_view first_line(std::string_view text);

}  // namespace cp_pool::protocol
