// Formats figures and texts for people, for the terminal and all reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// Returns "0.4 ms", "312 ms", "4.31 s", "2 m 03 s" or "1 h 02 m".
std::string format_duration(double milliseconds);

// Returns "0:07", "12:30" or "1:02:03": hours, minutes and seconds, rounded up.
std::string format_clock(double seconds);

// Returns three significant digits; non-finite values are nan, inf and -inf.
std::string format_figure(double value);

// Returns "1 case" or "2 cases".
std::string count_of(std::int64_t count, std::string_view noun);

// Returns the number of code points of valid UTF-8.
std::size_t width_of(std::string_view text);

// Returns the first `count` code points of valid UTF-8.
std::string clip(std::string_view text, std::size_t count);

// Returns at most `count` code points of valid UTF-8. Of a longer text it keeps the beginning, "..", and the end, and
// cuts between words: "error beyond .. of 512 rows". A word that alone is too long, such as an ID, is cut inside. The
// end is the larger part, because the point of a message and the differences between IDs are there.
std::string cut_middle(std::string_view text, std::size_t count);

// Returns the text with a blank in the place of each newline and tab.
std::string on_one_line(std::string_view text);

// Returns every line of the text behind the prefix, each ended by a newline. A final newline of the text adds no line.
std::string prefix_lines(std::string_view text, std::string_view prefix);

// Returns the first `most` of the lines, each behind the indent, and a line with the number of the others.
std::string first_lines(const std::vector<std::string>& lines, std::size_t most, std::string_view indent = "  ");

// Returns the text as one line of prose or a cell of a table that shows the text and nothing else: no markup, HTML,
// link or mention of a user. Newlines and tabs become spaces.
std::string markdown_text(std::string_view text);

// Returns the text as inline code, which may stand in a cell of a table.
std::string markdown_code(std::string_view text);

// Returns the lines of the text as a block of code, whatever fences the text contains. Ends with a newline.
std::string markdown_block(std::string_view text);

// Returns the text escaped for the inside of an HTML element.
std::string html_escaped(std::string_view text);

}  // namespace cp_pool
