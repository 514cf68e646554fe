// The environment variables of cp-pool, its worker and its tools: the section ENVIRONMENT of the man page.
#pragma once

#include <span>
#include <string_view>

namespace cp_pool {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view meaning;  // a sentence
};

// Returns every variable CP_POOL_* that the sources read, and other variables that change what cp-pool does.
std::span<const EnvironmentVariable> environment_variables();

}  // namespace cp_pool
