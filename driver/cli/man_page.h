// The man page, made from what --help is made from.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace cp_pool {

// man(7) source of cp-pool(1): every command with its options and the text below them.
std::string man_page(const CLI::App& app);

}  // namespace cp_pool
