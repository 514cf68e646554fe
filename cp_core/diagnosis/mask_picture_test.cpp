#include "cp_core/diagnosis/mask_picture.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/cases_on_threads.h"

namespace cp_pool::diagnosis {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// One sequence over two ranks. Nothing is seen, and nothing should be.
MaskPicture picture_of(std::int64_t tokens, const char* convention) {
  Case c = verify::test::small_case();
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = tokens;
  verify::Sharding sharding;
  sharding.rows = verify::parse_convention(convention).value();
  const ProbeGrid grid = make_grid(c, resolve_lengths(c), sharding, c.cp_size);
  const at::Tensor none = at::zeros({tokens, tokens}, at::kDouble);
  return draw_mask(grid, none, none, std::vector<RowReading>(static_cast<std::size_t>(tokens)));
}

TEST(MaskPicture, NamesAllRanksThatOwnRowsOfACell) {
  const MaskPicture picture = picture_of(2 * kMostCells, "striped");
  EXPECT_EQ(picture.q_per_cell, 2);
  EXPECT_THAT(picture.q_ranks, Each(0)) << "the owner of the first row";
  EXPECT_THAT(picture.q_owners, SizeIs(kMostCells));
  EXPECT_THAT(picture.q_owners, Each(ElementsAre(0, 1)));
  EXPECT_EQ(picture.kv_owners, picture.q_owners);
}

TEST(MaskPicture, NamesOneRankWhereCellsHaveOneOwner) {
  EXPECT_THAT(picture_of(8, "striped").q_owners, IsEmpty());
  EXPECT_THAT(picture_of(2 * kMostCells, "contiguous").q_owners, IsEmpty());
}

}  // namespace
}  // namespace cp_pool::diagnosis
