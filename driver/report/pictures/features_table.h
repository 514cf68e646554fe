// The outcomes of the cases that have a feature: a mask, a softmax, padding and so on. A case counts for each of its
// features.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include <pugixml.hpp>

#include "driver/core/events.h"

namespace cp_pool {

class FeaturesTable {
 public:
  void add(const CaseFinished& event);

  // Appends a heading and a table: features down, outcomes to the right, and a bar of their shares. It has only
  // features and outcomes that occur, and nothing is appended without cases. Each count links to the first such case in
  // the page's table of cases.
  void append_to(pugi::xml_node parent) const;

 private:
  struct Row {
    std::string name;
    std::size_t cases = 0;
    OutcomeCounts counts{};
    std::array<std::size_t, 3> by_urgency{};
    std::array<Urgency, kCaseOutcomes> worst{};                   // by outcome; an expected failure is not bad
    std::array<std::optional<std::size_t>, kCaseOutcomes> first;  // the smallest index, by outcome
  };

  std::map<std::size_t, Row> rows_;  // in the order of the table
};

}  // namespace cp_pool
