// A fingerprint of results. Equal bits give equal text on all machines of the same byte order.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "cp_core/verify/reference.h"

namespace cp_pool::verify {

class OutputHash {
 public:
  // An undefined tensor counts as an empty one.
  void add(const at::Tensor& tensor);
  [[nodiscard]] std::string hex() const;  // 16 digits

 private:
  void add_word(std::uint64_t word);

  std::uint64_t state_ = 0x6A09E667F3BCC908;
};

// Returns the hash of all results of a rank.
std::string hash_of(const Results& results);

}  // namespace cp_pool::verify
