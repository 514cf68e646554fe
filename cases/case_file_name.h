// Names of files that belong to one case.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// The ID with '/' as "__", at most 200 bytes, which leaves room for an extension. An ID that is too long is cut, and a
// hash of the whole ID put at its end.
std::string case_file_name(std::string_view id);

}  // namespace cp_pool
