// The run as an HTML page for people (html_document.h). Its tables are the texts that the terminal shows; its pictures
// come from report/pictures/.
#pragma once

#include <string>
#include <string_view>

#include "driver/log/run_report.h"

namespace cp_pool {

// The file begins with this text, in this version and earlier ones.
inline constexpr std::string_view kHtmlStart =
    "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"/><title>cp-pool: ";

std::string html_report(const RunReport& run);

}  // namespace cp_pool
