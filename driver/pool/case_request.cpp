#include "driver/pool/case_request.h"

#include <algorithm>

#include <fmt/format.h>

#include "cases/case_json.h"

namespace cp_pool {

namespace {

bool knows(const nlohmann::json& capabilities, const CaseField& field) {
  return field.in_version_1 || lists(capabilities, "case_fields", field.name);
}

}  // namespace

bool lists(const nlohmann::json& capabilities, const char* name, std::string_view entry) {
  const auto list = capabilities.find(name);
  return list != capabilities.end() && list->is_array() &&
         std::ranges::find(*list, nlohmann::json(entry)) != list->end();
}

nlohmann::ordered_json case_for_worker(const Case& c, const nlohmann::json& capabilities) {
  nlohmann::ordered_json json = to_json(c);
  for (const CaseField& field : case_fields()) {
    if (!knows(capabilities, field)) json.erase(std::string(field.name));
  }
  return json;
}

std::string unknown_to_worker(const Case& c, const nlohmann::json& capabilities) {
  for (const CaseField& field : case_fields()) {
    if (knows(capabilities, field) || is_default(field, c)) continue;
    return fmt::format(
        "the worker does not know the case field {0} (here {1}): its capabilities.case_fields does not "
        "list it",
        field.name, field_text(field, c));
  }
  return {};
}

}  // namespace cp_pool
