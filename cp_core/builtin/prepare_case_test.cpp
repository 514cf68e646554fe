#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::verify {
namespace {

// Returns one piece for each call, which records the number of heads that it is for.
class CountingBackend final : public FastBackend {
 public:
  [[nodiscard]] std::vector<Preparation> preparations(std::span<const TilePlan>, const AttentionOperands& like, Pass,
                                                      bool) const override {
    return {[this, heads = like.q.size(1)] { done.push_back(heads); }};
  }

  mutable std::vector<std::int64_t> done;
};

// Records how many query rows each piece is for.
class RowsBackend final : public FastBackend {
 public:
  [[nodiscard]] std::vector<Preparation> preparations(std::span<const TilePlan>, const AttentionOperands& like, Pass,
                                                      bool) const override {
    return {[this, count = like.q.size(0)] { rows.push_back(count); }};
  }

  mutable std::vector<std::int64_t> rows;
};

TEST(PrepareCase, IsForTheCaseAndForItsMaskProbe) {
  Case c = test::small_case();
  c.heads = c.kv_heads = 8;
  c.comm = CommType::a2a;
  const CountingBackend backend;
  for (const Preparation& piece : prepare_case(c, 1, backend)) piece();
  EXPECT_THAT(backend.done, testing::ElementsAre(4, 4, 1, 1));
}

// A case with replicated tokens runs on whole sequences, so it must be prepared for these.
TEST(PrepareCase, OfReplicatedTokensIsForWholeSequences) {
  Case c = test::small_case();
  c.layout = Layout::thd;
  c.pad_between_seqs = true;
  c.batch = 1;
  c.seqlens = {13};
  c.training = false;
  const auto rows_of = [](const Case& of) {
    RowsBackend backend;
    for (const Preparation& piece : prepare_case(of, 0, backend)) piece();
    return backend.rows;
  };
  const auto whole = rows_of(c);
  ASSERT_FALSE(whole.empty());
  c.replicated = 5;
  EXPECT_EQ(rows_of(c), whole);
}

TEST(PrepareCase, HasNothingToDoForACaseThatWillBeSkipped) {
  Case c = test::small_case();
  c.heads = c.kv_heads = 3;
  c.comm = CommType::a2a;
  EXPECT_TRUE(prepare_case(c, 0, at::Device(at::kCPU)).empty());
}

}  // namespace
}  // namespace cp_pool::verify
