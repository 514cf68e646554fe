// What came of the cases that have a feature: a mask, a softmax, padding and so on. A case counts for each of its own.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include <pugixml.hpp>

#include "driver/events.h"

namespace cp_pool {

class FeaturesTable {
 public:
  void add(const CaseFinished& event);

  // A heading and a table: features down, outcomes to the right, and a bar of their parts. Only features and outcomes
  // that there are; nothing without cases. Counts lead to the first case of their kind in the page's table of cases.
  void append_to(pugi::xml_node parent) const;

 private:
  struct Row {
    std::string name;
    std::size_t cases = 0;
    OutcomeCounts counts{};
    std::array<std::size_t, 3> by_urgency{};
    std::array<Urgency, kCaseOutcomes> worst{};                   // by outcome: one that was expected is not bad
    std::array<std::optional<std::size_t>, kCaseOutcomes> first;  // the smallest index, by outcome
  };

  std::map<std::size_t, Row> rows_;  // in the order of the table
};

}  // namespace cp_pool
