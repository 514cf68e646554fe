// Writes foreign text to XML nodes, for JUnit and the HTML page.
#pragma once

#include <string>
#include <string_view>

#include <pugixml.hpp>

namespace cp_pool {

// Cleans the text and removes escape sequences: XML has no colours, and its parsers reject most control characters even
// when they are escaped.
std::string plain(std::string_view text);

// An attribute, its value made plain.
void set(pugi::xml_node node, const char* name, const std::string& value);

// A child with that text, which must be plain already.
pugi::xml_node append_text(pugi::xml_node parent, const char* name, const std::string& text);

}  // namespace cp_pool
