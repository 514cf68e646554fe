// Tests puts.h and the windows of LocalCommunicator.
#include "cp_core/comm/peer/puts.h"

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cp_core/testing/local_communicator.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

const LocalOptions kWithWindows{.windows = true};

at::Tensor zero_bytes(std::int64_t count) {
  return at::zeros({count}, at::kByte);
}

// A put of `rows` rows of `width` bytes, which begin at the source's first byte and have no gaps in it.
PeerWindows::Put put_of(const at::Tensor& source, int peer, std::int64_t rows, std::int64_t width) {
  return {.peer = peer,
          .block = {.source = source.const_data_ptr(),
                    .rows = rows,
                    .width = width,
                    .source_stride = width,
                    .target_stride = width}};
}

// Every rank writes 2 rows of 3 of its bytes, which lie 4 bytes apart, into its columns of each rank's table.
TEST(LocalWindows, TakeRectanglesFromAll) {
  const auto write = [](const CpGroups& groups, int rank) {
    const at::Tensor source = at::arange(10 * rank, 10 * rank + 8, at::kByte);
    const std::array windows{zero_bytes(1), zero_bytes(18)};
    std::vector<PeerWindows::Put> puts;
    for (int peer = 0; peer < 3; ++peer) {
      puts.push_back(put_of(source, peer, 2, 3));
      puts.back().window = 1;
      puts.back().first = static_cast<std::int64_t>(3) * rank;
      puts.back().block.source_stride = 4;
      puts.back().block.target_stride = 9;
    }
    groups.cp->windows()->put_all(windows, {&source, 1}, puts, "all")->wait();
    at::Tensor expected = at::zeros({2, 3, 3}, at::kByte);
    for (int from = 0; from < 3; ++from) {
      const at::Tensor rows = at::arange(10 * from, 10 * from + 8, at::kByte).view({2, 4});
      expected.select(1, from).copy_(rows.narrow(1, 0, 3));
    }
    EXPECT_TRUE(windows[1].equal(expected.flatten())) << "rank " << rank;
    EXPECT_TRUE(windows[0].equal(zero_bytes(1))) << "rank " << rank;
  };
  run_ranks(3, write, 1min, kWithWindows);
}

TEST(LocalWindows, AreWrittenInWaitOnlyWithWhatWasThereAtTheCall) {
  const auto write = [](const CpGroups& groups, int rank) {
    at::Tensor source = at::full({1}, rank + 1, at::kFloat);
    const at::Tensor window = at::zeros({1}, at::kFloat);
    const std::array puts{put_of(source, 1 - rank, 1, sizeof(float))};
    const auto work = groups.cp->windows()->put_all({&window, 1}, {&source, 1}, puts, "turn");
    source.fill_(7);
    groups.cp->checked_barrier(0, 10s);  // after it, the peer has sent
    EXPECT_TRUE(window.eq(0).all().item<bool>());
    work->wait();
    EXPECT_TRUE(window.eq(2 - rank).all().item<bool>());
  };
  run_ranks(2, write, 1min, kWithWindows);
}

TEST(LocalWindows, MayBeEmptyAndStayUnwritten) {
  const auto write = [](const CpGroups& groups, int rank) {
    const at::Tensor window = zero_bytes(0);
    const std::array puts{put_of(window, 1 - rank, 0, 4), put_of(window, 1 - rank, 3, 0)};
    groups.cp->windows()->put_all({&window, 1}, {&window, 1}, puts, "nothing")->wait();
    groups.cp->windows()->put_all({}, {}, {}, "nothing at all")->wait();
  };
  run_ranks(2, write, 1min, kWithWindows);
}

// The error text that rank 0 gets for its own put.
std::string refusal_of(const PeerWindows::Put& put, const at::Tensor& source) {
  const auto groups = make_local_groups(2, kWithWindows);
  try {
    static_cast<void>(groups[0].cp->windows()->put_all({}, {&source, 1}, {&put, 1}, "step"));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LocalWindows, RefusePutsToNoRankAndFromOutsideTheSources) {
  const at::Tensor source = zero_bytes(8);
  EXPECT_EQ(refusal_of(put_of(source, 1, 2, 4), source), "accepted");
  for (const int peer : {2, -1}) {
    EXPECT_THAT(refusal_of(put_of(source, peer, 2, 4), source),
                AllOf(HasSubstr("rank 0 of 2: put_all (step)"), HasSubstr("to rank " + std::to_string(peer))));
  }
  EXPECT_THAT(refusal_of(put_of(source, 1, 3, 4), source), HasSubstr("outside the sources"));
  EXPECT_THAT(refusal_of(put_of(zero_bytes(8), 1, 2, 4), source), HasSubstr("outside the sources"));
}

// The error that rank 0, whose only window has 8 bytes, gets when rank 1 writes this put there.
CommError error_of_window(const PeerWindows::Put& put, const at::Tensor& source) {
  const auto groups = make_local_groups(2, kWithWindows);
  static_cast<void>(groups[1].cp->windows()->put_all({}, {&source, 1}, {&put, 1}, "step"));
  const at::Tensor window = zero_bytes(8);
  try {
    groups[0].cp->windows()->put_all({&window, 1}, {}, {}, "step")->wait();
  } catch (const CommError& error) {
    EXPECT_TRUE(window.equal(zero_bytes(8)));
    return error;
  }
  return {CommError::Kind::timeout, "no CommError"};
}

TEST(LocalWindows, NameBothRanksOfAPutThatDoesNotFit) {
  const at::Tensor source = at::full({8}, 1, at::kByte);
  EXPECT_STREQ(error_of_window(put_of(source, 0, 2, 4), source).what(), "no CommError");
  const auto expect_failed = [&](const PeerWindows::Put& put, const std::string& text) {
    const CommError error = error_of_window(put, source);
    EXPECT_EQ(error.kind(), CommError::Kind::failed);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 of 2: put_all (step): rank 1 puts"), HasSubstr(text)));
  };
  PeerWindows::Put late = put_of(source, 0, 2, 4);
  late.first = 1;
  expect_failed(late, "2 rows of 4 bytes, 4 apart, from byte 1 of window 0 on, of 8 bytes");
  PeerWindows::Put early = put_of(source, 0, 2, 4);
  early.first = -1;
  expect_failed(early, "from byte -1 of window 0");
  PeerWindows::Put wide = put_of(source, 0, 2, 4);
  wide.block.target_stride = 5;
  expect_failed(wide, "5 apart");
  PeerWindows::Put elsewhere = put_of(source, 0, 2, 4);
  elsewhere.window = 1;
  expect_failed(elsewhere, "window 1 on, of 1 windows");
}

}  // namespace
}  // namespace cp_pool
