// Makes the man page from the same definitions as --help. Its section ENVIRONMENT has the environment variables of
// cp-pool, its worker and its tools.
#pragma once

#include "driver/cli/option_kinds.h"

namespace cp_pool {

// Returns the man(7) source of cp-pool(1): every command with its options and the text below them.
std::string man_page(const CLI::App& app);

}  // namespace cp_pool
