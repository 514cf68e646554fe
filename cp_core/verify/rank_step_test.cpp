#include "cp_core/verify/rank_step.h"

#include <array>
#include <set>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace cp_pool::verify {
namespace {

TEST(HashOfOutputs, DependsOnEveryResult) {
  Outputs outputs;
  auto& [forward, gradients] = outputs;
  const std::array results{&forward.out,  &forward.lse,  &forward.max_logit, &gradients.dq,
                           &gradients.dk, &gradients.dv, &gradients.dbias,   &gradients.dsink};
  for (at::Tensor* result : results) *result = at::zeros({3});
  std::set<std::string> hashes{hash_of(outputs)};
  for (at::Tensor* result : results) {
    *result = at::ones({3});
    hashes.insert(hash_of(outputs));
    *result = at::zeros({3});
  }
  EXPECT_EQ(hashes.size(), 1 + results.size());
}

}  // namespace
}  // namespace cp_pool::verify
