// Foreign text made fit to show and to store. It is cleaned once, where it enters, and nothing behind that has to think
// of it: what a worker says by parse_event, what is read of an events file by read_events, stderr by StderrRing, lines
// of stdout that are no message by WorkerGroup, names out of binaries by with_names, what errors of the command line
// quote by report_error, and the title of a run by Runner. IDs and commands are clean as they are made.
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

}  // namespace cp_pool::protocol
