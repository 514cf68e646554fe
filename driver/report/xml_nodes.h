// Writes text to XML nodes, for JUnit and the HTML pages. Texts are clean (worker/protocol/text_clean.h): they hold no
// character that XML forbids.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <pugixml.hpp>

namespace cp_pool {

inline void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(value.c_str());
}

// Appends a child with these attributes, and returns it.
inline pugi::xml_node append(pugi::xml_node parent, const char* name,
                             const std::vector<std::pair<const char*, std::string>>& attributes) {
  pugi::xml_node node = parent.append_child(name);
  for (const auto& [attribute, value] : attributes) set(node, attribute, value);
  return node;
}

// Appends a child with that text, and returns it.
inline pugi::xml_node append_text(pugi::xml_node parent, const char* name, const std::string& text) {
  pugi::xml_node node = parent.append_child(name);
  node.append_child(pugi::node_pcdata).set_value(text.c_str());
  return node;
}

}  // namespace cp_pool
