// Makes the man page from the same definitions as --help.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

// Returns the man(7) source of cp-pool(1): every command with its options and the text below them.
std::string man_page(const CLI::App& app);

}  // namespace cp_pool
