#include <set>

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "cp_core/verify/output_hash.h"

namespace cp_pool::verify {
namespace {

TEST(HashOfResults, DependsOnEveryResult) {
  Results results;
  for (const auto& [name, result] : kResults) results.*result = at::zeros({3});
  std::set<std::string> hashes{hash_of(results)};
  for (const auto& [name, result] : kResults) {
    results.*result = at::ones({3});
    hashes.insert(hash_of(results));
    results.*result = at::zeros({3});
  }
  EXPECT_EQ(hashes.size(), 1 + kResults.size());
}

}  // namespace
}  // namespace cp_pool::verify
