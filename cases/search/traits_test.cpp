#include "cases/search/traits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::search {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

Case plain() {
  Case c;
  c.dtype = DType::fp32;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 8;
  c.heads = c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_v = 1;
  c.training = false;
  return c;
}

TEST(Traits, AreNamesTruthValuesAndNumbersOfRanksWithTheirValue) {
  Case c = plain();
  c.causal = true;
  c.cp_size = 3;
  EXPECT_THAT(traits_of(c), Contains("comm=p2p"));
  EXPECT_THAT(traits_of(c), Contains("bias=none"));
  EXPECT_THAT(traits_of(c), Contains("causal=true"));
  EXPECT_THAT(traits_of(c), Contains("cp_size=3"));
  EXPECT_THAT(traits_of(c), Not(Contains("causal=false")));
}

TEST(Traits, OfThePlainestCaseAreNotSpecialWhateverItsSizes) {
  EXPECT_THAT(special_traits_of(plain()), IsEmpty());
  Case larger = plain();
  larger.seqlen_q = larger.seqlen_kv = 64;
  larger.seed = 99;
  EXPECT_THAT(special_traits_of(larger), IsEmpty());
}

TEST(Traits, CompareSizes) {
  Case c = plain();
  c.heads = 4;
  c.seqlen_kv = 16;
  c.window = {3, kInfiniteWindow};
  c.chunk = 4;
  EXPECT_THAT(special_traits_of(c),
              ElementsAre("a window to the left", "chunked attention", "heads > kv_heads", "seqlen_q < seqlen_kv"));
}

TEST(Traits, KnowTheLengthsOfPackedSequences) {
  Case c = plain();
  c.layout = Layout::thd;
  c.batch = 2;
  c.pad_between_seqs = true;
  c.seqlens = {{8, 0}};
  EXPECT_THAT(special_traits_of(c),
              ElementsAre("a sequence without keys", "a sequence without queries", "layout=thd",
                          "pad_between_seqs=true", "sequences of different lengths", "several sequences"));
}

TEST(Traits, ThatAnAdapterRefusesAreThoseItNames) {
  Case c = plain();
  c.layout = Layout::thd;
  c.seqlens = {8};
  c.seqlen_kv = 16;
  c.seqlens_kv = {16};
  c.kv_heads = 1;
  c.causal = c.training = true;
  c.cp_size = 4;
  c.comm = CommType::a2a_p2p;
  c.softmax = SoftmaxType::learnable;
  const auto refused = [&](const std::string& reason) { return traits_refused_by(reason, traits_of(c)); };
  const auto feature = [&](const std::string& name) {
    return refused("the case needs something, and the adapter ring does not declare the feature '" + name + "'");
  };
  EXPECT_THAT(refused("the adapter ring does not declare a2a+p2p in comm=['p2p', 'a2a']"), ElementsAre("comm=a2a+p2p"));
  EXPECT_THAT(refused("the adapter ring does not declare thd in layouts=['bshd']"), ElementsAre("layout=thd"));
  EXPECT_THAT(refused("the adapter ring declares max_ranks=2, and the case has 4 ranks"), ElementsAre("cp_size=4"));
  EXPECT_THAT(refused("the case trains, and the adapter ring has no backward"), ElementsAre("training=true"));
  EXPECT_THAT(feature("causal"), ElementsAre("causal=true"));
  EXPECT_THAT(feature("learnable"), ElementsAre("softmax=learnable"));
  EXPECT_THAT(feature("gqa"), ElementsAre("heads > kv_heads"));
  EXPECT_THAT(feature("unequal"),
              ElementsAre("seqlen_q < seqlen_kv", "sequences with more or fewer keys than queries"));
  EXPECT_THAT(feature("window"), IsEmpty());
  EXPECT_THAT(feature("padded_batch"), IsEmpty());
  EXPECT_THAT(feature("uneven_heads"), ElementsAre("heads that the ranks cannot split evenly"));
  c = plain();
  c.pad_between_seqs = true;
  EXPECT_THAT(feature("padded_batch"), ElementsAre("a padded batch"));
  EXPECT_THAT(refused("this case is not for me"), IsEmpty());
}

}  // namespace
}  // namespace cp_pool::search
