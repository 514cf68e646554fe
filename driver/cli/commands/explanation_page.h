// A case as a page: what `cp-pool explain --html` writes.
#pragma once

#include <string>
#include <string_view>

#include "cases/case.h"

namespace cp_pool {

// What the file begins with.
inline constexpr std::string_view kExplanationStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool explain: ";

// The document: the masks of the case's sequences with who owns what and where tiles meet, of many different ones the
// first; the exchanges of a step; what each rank computes; and all that explain_case says.
std::string explanation_page(const std::string& id, const Case& c);

}  // namespace cp_pool
