#include "driver/output_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

CaseFinished run_of(const std::string& id, const std::vector<std::string>& hashes) {
  CaseFinished event;
  event.id = id;
  event.outcome = CaseOutcome::pass;
  for (int rank = 0; const std::string& hash : hashes) {
    event.ranks.push_back({.rank = rank++, .ok = true, .error = "", .output_hash = hash});
  }
  return event;
}

TEST(OutputBits, AreComparedWithTheFirstRunOfTheCase) {
  OutputBits bits;
  EXPECT_FALSE(bits.compare(run_of("a", {"x", "y"})).repeated);
  EXPECT_FALSE(bits.compare(run_of("b", {"z", "z"})).repeated);
  const auto same = bits.compare(run_of("a", {"x", "y"}));
  EXPECT_TRUE(same.repeated);
  EXPECT_THAT(same.other_ranks, IsEmpty());
  EXPECT_THAT(bits.compare(run_of("a", {"x", "z"})).other_ranks, ElementsAre(1));
  EXPECT_THAT(bits.compare(run_of("a", {"y", "x"})).other_ranks, ElementsAre(0, 1));
  EXPECT_THAT(bits.compare(run_of("a", {"x", "y"})).other_ranks, IsEmpty()) << "with the first, not with the last";
}

TEST(OutputBits, AreThoseOfARankWhereverItIsListed) {
  OutputBits bits;
  CaseFinished event = run_of("a", {"x", "y"});
  bits.compare(event);
  std::swap(event.ranks[0], event.ranks[1]);
  EXPECT_THAT(bits.compare(event).other_ranks, IsEmpty());
}

TEST(OutputBits, OfOtherProblemsWithTheSameIdAreNotCompared) {
  OutputBits bits;
  CaseFinished event = run_of("a", {"x"});
  bits.compare(event);
  event.c.seqlen_q += 8;
  event.ranks[0].output_hash = "y";
  EXPECT_FALSE(bits.compare(event).repeated);
  event.ranks[0].output_hash = "z";
  EXPECT_THAT(bits.compare(event).other_ranks, ElementsAre(0));
}

TEST(OutputBits, ThatAWorkerDoesNotTellAreNotCompared) {
  OutputBits bits;
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(bits.compare(run_of("a", {"x", ""})).repeated);
    EXPECT_FALSE(bits.compare(run_of("a", {})).repeated);
  }
}

TEST(OutputBits, ArePromisedButByTheBackwardOfLibrariesOnGpus) {
  CaseFinished event;
  event.c.backend = Backend::cudnn;
  event.c.training = true;
  event.pool = PoolId{.key = "cuda/2", .generation = 1};
  EXPECT_FALSE(promises_bits(event));
  const auto with = [&](auto change) {
    CaseFinished other = event;
    change(other);
    return promises_bits(other);
  };
  EXPECT_TRUE(with([](CaseFinished& e) { e.c.deterministic = true; }));
  EXPECT_TRUE(with([](CaseFinished& e) { e.c.backend = Backend::math; }));
  EXPECT_TRUE(with([](CaseFinished& e) { e.c.training = false; }));
  EXPECT_TRUE(with([](CaseFinished& e) { e.pool->key = "cpu/2"; }));
}

}  // namespace
}  // namespace cp_pool
