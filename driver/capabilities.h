// What a worker says about itself in its ready event (docs/protocol.md).
#pragma once

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

namespace cp_pool {

// Whether the list `name` in a worker's capabilities has this entry, as in {"options":["bound_factor"]}.
inline bool lists(const nlohmann::json& capabilities, const char* name, std::string_view entry) {
  const auto list = capabilities.find(name);
  return list != capabilities.end() && list->is_array() &&
         std::ranges::find(*list, nlohmann::json(entry)) != list->end();
}

}  // namespace cp_pool
