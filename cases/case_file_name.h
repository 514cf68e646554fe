// What files of one case are called.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// The ID with '/' as "__". Of one that is too long for a file system, with what is put after it, the beginning and a
// hash of the whole: 200 bytes at most.
std::string case_file_name(std::string_view id);

}  // namespace cp_pool
