// Figures as people read them. Shared by the terminal and the JUnit texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// "0.4 ms", "312 ms", "4.31 s", "2 m 03 s", "1 h 02 m".
std::string format_duration(double milliseconds);

// "0:07", "12:30", "1:02:03": hours, minutes and seconds of a time still to go.
std::string format_clock(double seconds);

// Three significant digits, non-finite as nan, inf, -inf.
std::string format_figure(double value);

// "1 case", "2 cases".
std::string count_of(std::size_t count, std::string_view noun);

// "[0, 17, 3]".
std::string format_index(const std::vector<std::int64_t>& index);

// The number of code points of valid UTF-8.
std::size_t width_of(std::string_view text);

// The first `count` code points of valid UTF-8.
std::string clip(std::string_view text, std::size_t count);

// At most `count` code points of valid UTF-8: of a longer text its beginning, "..", and its end, which is the larger
// part, since the point of a message and what tells one ID from the next stand there.
std::string cut_middle(std::string_view text, std::size_t count);

// Every line of text behind the prefix, each ended by a newline. A final newline of text adds no line.
std::string prefix_lines(std::string_view text, std::string_view prefix);

}  // namespace cp_pool
