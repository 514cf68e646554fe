#include "driver/core/adapter_outlook.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"

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
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    if (auto outlook = outlook_in(lines.substr(0, end))) outlooks.push_back(*std::move(outlook));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return outlooks;
}

}  // namespace cp_pool
