// A page of cp-pool: one file without external scripts, fonts or pictures, in light and dark colours, and readable in
// print. Pictures are SVG in the page (report/pictures/). Nodes of XML are written here for JUnit, too. Texts are clean
// (worker/protocol/text_clean.h): they hold no character that XML forbids.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <pugixml.hpp>

#include "cases/case_outcome.h"

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

class HtmlDocument {
 public:
  explicit HtmlDocument(const std::string& title);

  [[nodiscard]] pugi::xml_node body() const { return body_; }
  // Returns the document, which is also well-formed XML.
  [[nodiscard]] std::string text() const;

 private:
  pugi::xml_document document_;
  pugi::xml_node body_;
};

// Returns the style's class for an outcome of this urgency.
const char* outcome_class(Urgency urgency);
// Returns the id of a case's row in the table of all cases, for links to it.
std::string case_anchor(std::size_t index);

// Appends a table with this head, and returns it for further rows.
pugi::xml_node append_table(pugi::xml_node parent, const std::vector<std::string>& head);
// Appends a cell. `kind` is its class in the style, or nullptr for none.
pugi::xml_node append_cell(pugi::xml_node row, const std::string& text, const char* kind = nullptr);

}  // namespace cp_pool
