// Parses a page as XML; every page of cp-pool is well-formed.
#pragma once

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <pugixml.hpp>

#include "driver/report/html_document.h"

namespace cp_pool::test {

class ParsedPage {
 public:
  explicit ParsedPage(std::string page) : text{std::move(page)} {
    const pugi::xml_parse_result parsed =
        document_->load_string(text.c_str(), pugi::parse_default | pugi::parse_ws_pcdata);
    EXPECT_TRUE(parsed) << parsed.description() << "\n" << text;
  }

  // Returns the text of every node that the XPath selects, including the text of its children.
  [[nodiscard]] std::vector<std::string> all(const std::string& path) const {
    std::vector<std::string> out;
    for (const pugi::xpath_node& found : document_->select_nodes(path.c_str())) {
      out.push_back(found.attribute() ? found.attribute().value()
                                      : pugi::xpath_query("string()").evaluate_string(found));
    }
    return out;
  }
  [[nodiscard]] std::string one(const std::string& path) const {
    const std::vector<std::string> found = all(path);
    EXPECT_EQ(found.size(), 1U) << path << "\n" << text;
    return found.empty() ? "" : found.front();
  }

  std::string text;

 private:
  std::unique_ptr<pugi::xml_document> document_ = std::make_unique<pugi::xml_document>();
};

// Returns a page with the nodes that append(body) appends.
template <typename Append>
ParsedPage page_with(Append append) {
  const HtmlDocument document("cp-pool: test");
  append(document.body());
  return ParsedPage(document.text());
}

// Expects that the page's pictures are accessible and complete: each has a title and a description or is hidden, no id
// occurs twice, references lead to parts of the page, and nothing is loaded from elsewhere.
inline void expect_readable(const ParsedPage& page) {
  for (const std::string& hidden : page.all("//svg[not(@aria-hidden)][not(@role='img' and title)]/@id")) {
    ADD_FAILURE() << hidden << " has no role or title";
  }
  EXPECT_EQ(page.all("//svg[@aria-labelledby][not(desc)]").size(), 0U);
  std::set<std::string> ids;
  for (const std::string& id : page.all("//@id")) EXPECT_TRUE(ids.insert(id).second) << id << " stands twice";
  for (const std::string& names : page.all("//@aria-labelledby")) {
    std::istringstream words(names);
    for (std::string name; words >> name;) EXPECT_TRUE(ids.contains(name)) << name;
  }
  for (const char* attribute : {"fill", "marker-end", "marker-start"}) {
    for (const std::string& value : page.all(std::string{"//@"} + attribute)) {
      EXPECT_TRUE(value.starts_with("url(#") && ids.contains(value.substr(5, value.size() - 6))) << value;
    }
  }
  EXPECT_THAT(page.all("//script | //img | //link | //*[@src] | //style[contains(., 'url(')]"), testing::IsEmpty());
  EXPECT_THAT(page.all("//@style"), testing::IsEmpty()) << "colours are those of the page's style";
}

}  // namespace cp_pool::test
