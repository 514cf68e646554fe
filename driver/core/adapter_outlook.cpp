#include "driver/core/adapter_outlook.h"

#include "worker/protocol/field_json.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

std::vector<AdapterOutlook> parse_outlooks(std::string_view lines) {
  std::vector<AdapterOutlook> outlooks;
  for (const std::string_view line : protocol::lines_of(lines)) {
    try {
      const nlohmann::json answer = protocol::parse_foreign_json(line);
      outlooks.push_back(protocol::read_fields<AdapterOutlook>(protocol::Fields(answer, "outlook")));
    } catch (const std::exception&) {  // errors of JSON and of fields
      continue;
    }
  }
  return outlooks;
}

}  // namespace cp_pool
