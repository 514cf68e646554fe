#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/trial/run_case.h"

namespace cp_pool::verify {
namespace {

// One piece for each pass, which takes down the heads it is for.
class CountingBackend final : public FastBackend {
 public:
  [[nodiscard]] std::vector<Preparation> preparations(std::span<const TilePlan>, const AttentionOperands& like, Pass,
                                                      bool) const override {
    return {[this, heads = like.q.size(1)] { done.push_back(heads); }};
  }

  mutable std::vector<std::int64_t> done;
};

TEST(PrepareCase, IsForTheCaseAndForItsMaskProbe) {
  Case c = test::small_case();
  c.heads = c.kv_heads = 8;
  c.comm = CommType::a2a;
  const CountingBackend backend;
  for (const Preparation& piece : prepare_case(c, 1, backend)) piece();
  EXPECT_THAT(backend.done, testing::ElementsAre(4, 4, 1, 1));
}

TEST(PrepareCase, HasNothingToDoForACaseThatWillBeSkipped) {
  Case c = test::small_case();
  c.heads = c.kv_heads = 3;
  c.comm = CommType::a2a;
  EXPECT_TRUE(prepare_case(c, 0, at::Device(at::kCPU)).empty());
}

}  // namespace
}  // namespace cp_pool::verify
