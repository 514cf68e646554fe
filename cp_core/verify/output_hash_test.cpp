#include "cp_core/verify/output_hash.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

std::string hash_of_all(const std::vector<at::Tensor>& tensors) {
  OutputHash hash;
  for (const auto& tensor : tensors) hash.add(tensor);
  return hash.hex();
}

TEST(OutputHash, DependsOnEveryBit) {
  const at::Tensor values = at::arange(101, at::kFloat);  // the last one is half a word
  for (const std::int64_t element : {0, 50, 100}) {
    at::Tensor changed = values.clone();
    changed[element].mul_(1.0000002);
    changed[element].add_(element == 0 ? 1e-30 : 0);
    EXPECT_NE(hash_of_all({changed}), hash_of_all({values})) << element;
  }
}

TEST(OutputHash, TellsSizesOrderAndAbsenceApart) {
  const at::Tensor three = at::zeros({3}, at::kBFloat16);  // not a whole number of words
  const at::Tensor four = at::zeros({4}, at::kBFloat16);
  EXPECT_NE(hash_of_all({three}), hash_of_all({four}));
  EXPECT_NE(hash_of_all({three, four}), hash_of_all({four, three}));
  EXPECT_NE(hash_of_all({three, at::Tensor()}), hash_of_all({three}));
}

TEST(OutputHash, LooksAtValuesNotAtStrides) {
  const at::Tensor matrix = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_EQ(hash_of_all({matrix.t()}), hash_of_all({matrix.t().contiguous()}));
}

}  // namespace
}  // namespace cp_pool::verify
