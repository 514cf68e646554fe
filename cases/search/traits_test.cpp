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

}  // namespace
}  // namespace cp_pool::search
