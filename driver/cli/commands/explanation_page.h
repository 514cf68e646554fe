// `cp-pool explain --html`: a case as an HTML page.
#pragma once

#include <string>
#include <string_view>

#include "cases/case.h"

namespace cp_pool {

// The page begins with this text, by which --html recognises a page that it may replace.
inline constexpr std::string_view kExplanationStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool explain: ";

// Returns the document. It draws the masks of the case's sequences with their owners and tiles (the first few, if there
// are many different ones) and the exchanges of a step. It also lists what each rank computes, and ends with the text
// of explain_case.
std::string explanation_page(const std::string& id, const Case& c);

}  // namespace cp_pool
