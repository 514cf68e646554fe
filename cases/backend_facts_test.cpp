#include "cases/backend_facts.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

Case training_case(Backend backend) {
  Case c;
  c.backend = backend;
  c.training = true;
  return c;
}

TEST(PromisesBits, ABackwardOfALibraryOnAGpuDoesOnlyWhereItIsAskedTo) {
  for (const Backend library : {Backend::flash, Backend::cudnn}) {
    Case c = training_case(library);
    EXPECT_FALSE(promises_bits(c, /*on_gpu=*/true)) << to_string(library);
    EXPECT_TRUE(promises_bits(c, /*on_gpu=*/false)) << to_string(library);
    c.deterministic = true;
    EXPECT_TRUE(promises_bits(c, /*on_gpu=*/true)) << to_string(library);
    c.deterministic = false;
    c.training = false;
    EXPECT_TRUE(promises_bits(c, /*on_gpu=*/true)) << to_string(library);
  }
  EXPECT_TRUE(promises_bits(training_case(Backend::math), /*on_gpu=*/true));
}

}  // namespace
}  // namespace cp_pool
