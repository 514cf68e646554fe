#include "driver/core/adapter_outlook.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

std::optional<AdapterOutlook> outlook_in(std::string_view line) {
  try {
    const nlohmann::json answer = protocol::parse_foreign_json(line);
    if (!answer.is_object() || !answer.contains("skip") || !answer["skip"].is_string()) return std::nullopt;
    return AdapterOutlook{.skip = answer["skip"].get<std::string>(),
                          .pairs = answer.value("pairs", std::vector<std::int64_t>{})};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const protocol::ProtocolError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<AdapterOutlook> parse_outlooks(std::string_view lines) {
  std::vector<AdapterOutlook> outlooks;
  for (const std::string_view line : protocol::lines_of(lines)) {
    if (auto outlook = outlook_in(line)) outlooks.push_back(*std::move(outlook));
  }
  return outlooks;
}

}  // namespace cp_pool
