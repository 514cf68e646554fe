// Foreign text in Markdown, as GitHub and GitLab render it. Texts are clean (worker/protocol/text_clean.h).
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

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
