// The secret of a pool, by which its ranks are told from other processes that can reach a port.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool::protocol {

// Returns 128 random bits of the kernel as 32 hexadecimal digits.
std::string random_token();

// Compares in a time that does not depend on where the texts differ.
bool is_same_secret(std::string_view said, std::string_view secret);

}  // namespace cp_pool::protocol
