// A page of cp-pool: one file without scripts, fonts or pictures from elsewhere, light and dark, and readable printed.
// Texts are plain (reporters/xml_nodes.h). Pictures are SVG in the page (reporters/pictures/).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <pugixml.hpp>

#include "cases/case_outcome.h"

namespace cp_pool {

class HtmlDocument {
 public:
  explicit HtmlDocument(const std::string& title);

  [[nodiscard]] pugi::xml_node body() const { return body_; }
  // The document, which is well-formed XML, too.
  [[nodiscard]] std::string text() const;

 private:
  pugi::xml_document document_;
  pugi::xml_node body_;
};

// The class in the style of what has an outcome of this urgency.
const char* outcome_class(Urgency urgency);
// The id of a case's row in the table of all cases, where links lead to.
std::string case_anchor(std::size_t index);

// A table with this head; rows are appended to it.
pugi::xml_node append_table(pugi::xml_node parent, const std::vector<std::string>& head);
// kind: the class that it has in the style; null: none.
pugi::xml_node append_cell(pugi::xml_node row, const std::string& text, const char* kind = nullptr);

}  // namespace cp_pool
