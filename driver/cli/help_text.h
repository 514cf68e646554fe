// The examples and tables below the options in every --help.
#pragma once

#include <string>

namespace cp_pool {

std::string main_footer();
std::string run_footer();
std::string submit_footer();
std::string list_footer();

}  // namespace cp_pool
