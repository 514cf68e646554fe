#include "driver/output_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/testing/attention.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

CaseFinished run_of(const std::string& id, const std::vector<std::string>& hashes) {
  CaseFinished event;
  event.id = id;
  event.outcome = CaseOutcome::pass;
  for (int rank = 0; const std::string& hash : hashes) {
    event.ranks.push_back({{.output_hash = hash}, rank++});
  }
  return event;
}

TEST(OutputBits, AreComparedWithTheFirstRunOfTheCase) {
  OutputBits bits;
  EXPECT_EQ(bits.other_ranks(run_of("a", {"x", "y"})), std::nullopt);
  EXPECT_EQ(bits.other_ranks(run_of("b", {"z", "z"})), std::nullopt);
  EXPECT_THAT(bits.other_ranks(run_of("a", {"x", "y"})), Optional(IsEmpty()));
  EXPECT_THAT(bits.other_ranks(run_of("a", {"x", "z"})), Optional(ElementsAre(1)));
  EXPECT_THAT(bits.other_ranks(run_of("a", {"y", "x"})), Optional(ElementsAre(0, 1)));
  EXPECT_THAT(bits.other_ranks(run_of("a", {"x", "y"})), Optional(IsEmpty())) << "with the first, not with the last";
}

TEST(OutputBits, AreThoseOfARankWhereverItIsListed) {
  OutputBits bits;
  CaseFinished event = run_of("a", {"x", "y"});
  bits.other_ranks(event);
  std::swap(event.ranks[0], event.ranks[1]);
  EXPECT_THAT(bits.other_ranks(event), Optional(IsEmpty()));
}

TEST(OutputBits, ThatAWorkerDoesNotTellAreNotCompared) {
  OutputBits bits;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(bits.other_ranks(run_of("a", {"x", ""})), std::nullopt);
    EXPECT_EQ(bits.other_ranks(run_of("a", {})), std::nullopt);
  }
}

TEST(OutputBits, ArePromisedButByTheBackwardOfLibrariesOnGpus) {
  CaseFinished event;
  test::attention(event.payload).backend = Backend::cudnn;
  test::attention(event.payload).training = true;
  event.pool = PoolId{.key = "cuda/2", .generation = 1};
  EXPECT_FALSE(promises_bits(event));
  const auto with = [&](auto change) {
    CaseFinished other = event;
    change(other);
    return promises_bits(other);
  };
  EXPECT_TRUE(with([](CaseFinished& e) { test::attention(e.payload).deterministic = true; }));
  EXPECT_TRUE(with([](CaseFinished& e) { test::attention(e.payload).backend = Backend::math; }));
  EXPECT_TRUE(with([](CaseFinished& e) { test::attention(e.payload).training = false; }));
  EXPECT_TRUE(with([](CaseFinished& e) { e.pool->key = "cpu/2"; }));
  const auto by_an_adapter = [&](auto change) {
    return with([&](CaseFinished& e) {
      e.backend = "ring";
      test::attention(e.payload).backend = Backend::math;
      change(e);
    });
  };
  EXPECT_FALSE(by_an_adapter([](CaseFinished&) {}));
  EXPECT_TRUE(by_an_adapter([](CaseFinished& e) { test::attention(e.payload).deterministic = true; }));
  EXPECT_TRUE(by_an_adapter([](CaseFinished& e) { test::attention(e.payload).training = false; }));
  EXPECT_TRUE(by_an_adapter([](CaseFinished& e) { e.pool->key = "cpu/2"; }));
}

}  // namespace
}  // namespace cp_pool
