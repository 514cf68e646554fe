// What this worker can do and is made of, for its ready event.
#pragma once

#include <nlohmann/json.hpp>

namespace cp_pool {

// Backends by device, and the comm types, layouts, dtypes, softmax types and bias shapes that cases may name.
nlohmann::json capabilities();
// Versions of the libraries, by name.
nlohmann::json versions();

}  // namespace cp_pool
