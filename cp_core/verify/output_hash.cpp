#include "cp_core/verify/output_hash.h"

#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace cp_pool::verify {
namespace {

// The finaliser of MurmurHash3 (Appleby, public domain): every input bit reaches every output bit.
std::uint64_t avalanche(std::uint64_t z) {
  z = (z ^ (z >> 33U)) * 0xFF51AFD7ED558CCD;
  z = (z ^ (z >> 33U)) * 0xC4CEB9FE1A85EC53;
  return z ^ (z >> 33U);
}

}  // namespace

void OutputHash::add_word(std::uint64_t word) {
  state_ = std::rotl(state_ ^ (word * 0x9E3779B97F4A7C15), 29) * 0xBF58476D1CE4E5B9 + 1;
}

void OutputHash::add(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.defined() ? tensor.contiguous() : tensor;
  const std::size_t size = tensor.defined() ? bytes.nbytes() : 0;
  const auto* data = size == 0 ? nullptr : static_cast<const std::byte*>(bytes.const_data_ptr());
  add_word(size);
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + at, std::min(sizeof word, size - at));
    add_word(word);
  }
}

std::string OutputHash::hex() const {
  return fmt::format("{:016x}", avalanche(state_));
}

}  // namespace cp_pool::verify
