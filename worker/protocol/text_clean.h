// Cleans foreign text before it is shown or stored. Text is cleaned once, where it enters; the code behind relies on
// it. Text enters through:
// - parse_foreign_json: JSON of workers, lifelines, fork servers, adapters and services, and of files of earlier runs
// - StderrBuffer: stderr
// - WorkerGroup: lines of stdout that are no message
// - with_names: names from debug information
// - report_error: the command line and input files, as errors quote them
// - started_now: texts of a run's header, some of which a client of the service sends
// - ForkServer: stderr of a fork server, and errors that quote its messages
// - adapter_skips.cpp: stderr of an adapter that is asked what it skips, and of an interpreter
// - service/session.cpp: names of clients, and errors that quote their messages
// - service_run.cpp: IDs of the cases that clients submit
// IDs with control characters are refused (submitted_case.cpp), and commands to paste escape them (shell_words.cpp).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool::protocol {

// Replaces every maximal invalid UTF-8 sequence by one U+FFFD (the Unicode standard's recommended practice).
std::string to_valid_utf8(std::string_view text);

// Returns valid UTF-8. Control characters other than newline and tab become \xNN (C1 and bidirectional controls
// \u{NNNN}), "\r\n" becomes a newline, and code points that XML forbids become U+FFFD. Clean text is returned
// unchanged.
std::string clean_text(std::string_view text);

// Returns at most max_bytes of text. If text is longer, it is cut between two words, or between two code points of a
// very long word, and a note of the cut ends the result (within max_bytes).
std::string cut_text(std::string_view text, std::size_t max_bytes);

// Returns the lines of the text without their newlines. A newline at the end adds no line.
std::vector<std::string_view> lines_of(std::string_view text);

// Returns the text up to the first newline.
std::string_view first_line(std::string_view text);

// Returns the last line that is not empty, without its newline.
std::string_view last_line(std::string_view text);

}  // namespace cp_pool::protocol
