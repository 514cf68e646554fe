// What stands below the options in every --help, and in the man page.
#pragma once

#include <string>

namespace cp_pool {

std::string main_footer();
std::string run_footer();
std::string submit_footer();
std::string list_footer();
std::string report_footer();
std::string conformance_footer();
std::string explain_footer();
std::string doctor_footer();
std::string help_footer();

std::string exit_code_help();  // the table, below all of them

}  // namespace cp_pool
