#include "cp_core/verify/output_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "cp_core/cuda/cuda_part.h"
#include "cp_core/verify/cuda_kernels.h"
#include "cp_core/verify/word_sum.h"

namespace cp_pool::verify {
namespace {

std::uint64_t sum_words_cpu(const std::byte* data, std::size_t size) {
  std::uint64_t sum = 0;
  for (std::size_t at = 0; at < size; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;  // the last word is filled up with zeros
    std::memcpy(&word, data + at, std::min(sizeof word, size - at));
    sum += word_term(word, at / sizeof word);
  }
  return sum;
}

std::uint64_t sum_words(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.nbytes() == 0) return 0;
  const at::Tensor bytes = tensor.contiguous();
  if (bytes.is_cuda()) return cuda_part<VerifyKernels>().sum_words(bytes);
  return sum_words_cpu(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes());
}

}  // namespace

void OutputHash::add_word(std::uint64_t word) {
  state_ = std::rotl(state_ ^ (word * 0x9E3779B97F4A7C15), 29) * 0xBF58476D1CE4E5B9 + 1;
}

void OutputHash::add(const at::Tensor& tensor) {
  add_word(tensor.defined() ? tensor.nbytes() : 0);
  add_word(sum_words(tensor));
}

std::string OutputHash::hex() const {
  return fmt::format("{:016x}", avalanche(state_));
}

std::string hash_of(const Results& results) {
  OutputHash hash;
  for (const auto& [name, result] : kResults) hash.add(results.*result);
  return hash.hex();
}

}  // namespace cp_pool::verify
