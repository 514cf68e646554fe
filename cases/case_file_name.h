// Names of files that belong to one case.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// Returns the ID with each '/' replaced by "__", in at most 200 bytes, which leaves room for an extension. An ID that
// is too long is cut and followed by a hash of the whole ID.
std::string case_file_name(std::string_view id);

}  // namespace cp_pool
