// Makes the man page from the same definitions as --help. Its section ENVIRONMENT has the environment variables of
// cp-pool, its worker and its tools.
#pragma once

#include <span>

#include "driver/cli/option_kinds.h"

namespace cp_pool {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view meaning;  // a sentence
};

// Returns every variable CP_POOL_* that the sources read, and other variables that change what cp-pool does.
std::span<const EnvironmentVariable> environment_variables();

// Returns the man(7) source of cp-pool(1): every command with its options and the text below them.
std::string man_page(const CLI::App& app);

}  // namespace cp_pool
