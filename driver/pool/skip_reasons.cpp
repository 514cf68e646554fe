#include "driver/pool/skip_reasons.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include <nlohmann/json.hpp>

#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

std::optional<std::string> skip_in(std::string_view line) {
  try {
    const nlohmann::json answer = protocol::parse_foreign_json(line);
    if (!answer.is_object() || !answer.contains("skip") || !answer["skip"].is_string()) return std::nullopt;
    return answer["skip"].get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const protocol::ProtocolError&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> skip_reasons_in(std::string_view lines) {
  std::vector<std::string> reasons;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    if (auto reason = skip_in(lines.substr(0, end))) reasons.push_back(*std::move(reason));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return reasons;
}

}  // namespace cp_pool
