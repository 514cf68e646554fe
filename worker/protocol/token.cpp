#include "worker/protocol/token.h"

#include <cstddef>
#include <random>

#include <fmt/format.h>

namespace cp_pool::protocol {

std::string random_token() {
  std::random_device random;  // the kernel's source of randomness
  std::string out;
  for (int word = 0; word < 4; ++word) out += fmt::format("{:08x}", random());
  return out;
}

bool is_same_secret(std::string_view said, std::string_view secret) {
  if (said.size() != secret.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    difference |= static_cast<unsigned char>(said[i]) ^ static_cast<unsigned char>(secret[i]);
  }
  return difference == 0;
}

}  // namespace cp_pool::protocol
