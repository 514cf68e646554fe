// Writes text to XML nodes, for JUnit and the HTML pages. Texts are clean (worker/protocol/text_clean.h): they hold no
// character that XML forbids.
#pragma once

#include <string>

#include <pugixml.hpp>

namespace cp_pool {

void set(pugi::xml_node node, const char* name, const std::string& value);

// Appends a child with that text, and returns it.
pugi::xml_node append_text(pugi::xml_node parent, const char* name, const std::string& text);

}  // namespace cp_pool
