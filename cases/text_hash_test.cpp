#include "cases/text_hash.h"

#include <gtest/gtest.h>

namespace cp_pool {
namespace {

// Test vectors of the FNV reference code.
TEST(TextHash, IsFnv1a) {
  EXPECT_EQ(text_hash(""), "cbf29ce484222325");
  EXPECT_EQ(text_hash("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(text_hash("foobar"), "85944171f73967e8");
}

}  // namespace
}  // namespace cp_pool
