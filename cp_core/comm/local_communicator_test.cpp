#include "cp_core/comm/local_communicator.h"

#include <array>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

at::Tensor filled(std::int64_t size, double value) {
  return at::full({size}, value, at::kFloat);
}

TEST(LocalCommunicator, ExchangesInARing) {
  run_ranks(3, [](const CpGroups& groups, int rank) {
    at::Tensor received = at::zeros({2}, at::kFloat);
    groups.cp->exchange(filled(2, rank), (rank + 1) % 3, received, (rank + 2) % 3, "turn")->wait();
    EXPECT_TRUE(received.equal(filled(2, (rank + 2) % 3)));
  });
}

TEST(LocalCommunicator, ExchangesSeveralTensorsAsOneMessage) {
  run_ranks(3, [](const CpGroups& groups, int rank) {
    const std::array sends{filled(2, rank), filled(0, 0), at::full({3}, rank + 10, at::kBFloat16)};
    const std::array receives{at::zeros({2}, at::kFloat), filled(0, 0), at::zeros({3}, at::kBFloat16)};
    groups.cp->exchange_many(sends, (rank + 1) % 3, receives, (rank + 2) % 3, "turn")->wait();
    EXPECT_TRUE(receives[0].equal(filled(2, (rank + 2) % 3)));
    EXPECT_TRUE(receives[2].equal(at::full({3}, (rank + 2) % 3 + 10, at::kBFloat16)));
  });
}

TEST(LocalCommunicator, ExchangesMessagesWithAllOthers) {
  run_ranks(3, [](const CpGroups& groups, int rank) {
    std::vector<Communicator::Message> sends;
    std::vector<Communicator::Message> receives;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      for (int i = 0; i <= rank; ++i) sends.push_back({.tensor = filled(i, 10 * rank + peer), .peer = peer});
      for (int i = 0; i <= peer; ++i) receives.push_back({.tensor = filled(i, -1), .peer = peer});
    }
    groups.cp->exchange_all(sends, receives, "all")->wait();
    for (const auto& [tensor, peer] : receives) EXPECT_TRUE(tensor.equal(filled(tensor.numel(), 10 * peer + rank)));
  });
}

TEST(LocalCommunicator, WritesTheReceiveTensorInWaitOnly) {
  run_ranks(2, [](const CpGroups& groups, int rank) {
    at::Tensor received = at::zeros({1}, at::kFloat);
    const auto work = groups.cp->exchange(filled(1, rank + 1), 1 - rank, received, 1 - rank, "turn");
    groups.cp->checked_barrier(0, 10s);  // the peer has sent by now
    EXPECT_TRUE(received.equal(filled(1, 0)));
    work->wait();
    EXPECT_TRUE(received.equal(filled(1, 2 - rank)));
  });
}

TEST(LocalCommunicator, GathersScattersAndReducesInRankOrder) {
  run_ranks(4, [](const CpGroups& groups, int rank) {
    at::Tensor gathered = at::zeros({4}, at::kFloat);
    groups.cp->all_gather(gathered, filled(1, rank), "gather")->wait();
    EXPECT_TRUE(gathered.equal(at::arange(4, at::kFloat)));

    at::Tensor traded = at::zeros({4}, at::kFloat);
    groups.cp->all_to_all(traded, at::arange(10 * rank, 10 * rank + 4, at::kFloat), "trade")->wait();
    EXPECT_TRUE(traded.equal(at::arange(rank, 40 + rank, 10, at::kFloat)));

    at::Tensor part = at::zeros({1}, at::kFloat);
    groups.cp->reduce_scatter(part, at::arange(4, at::kFloat), "reduce")->wait();
    EXPECT_TRUE(part.equal(filled(1, 4 * rank)));

    at::Tensor largest = filled(1, rank == 2 ? 5 : -1);
    groups.cp->all_reduce(largest, ReduceOp::max, "largest")->wait();
    EXPECT_TRUE(largest.equal(filled(1, 5)));
  });
}

TEST(LocalCommunicator, CarriesTensorsWithoutElements) {
  run_ranks(2, [](const CpGroups& groups, int rank) {
    at::Tensor received = at::zeros({0}, at::kFloat);
    groups.cp->exchange(at::zeros({0}, at::kFloat), 1 - rank, received, 1 - rank, "nothing")->wait();
  });
}

TEST(LocalCommunicator, MakesPairsOfNeighboursAndRingsOfEqualParity) {
  run_ranks(8, [](const CpGroups& groups, int rank) {
    at::Tensor pair = at::zeros({2}, at::kFloat);
    groups.inner->all_gather(pair, filled(1, rank), "pair")->wait();
    EXPECT_TRUE(pair.equal(at::arange(rank - rank % 2, rank - rank % 2 + 2, at::kFloat)));
    at::Tensor ring = at::zeros({4}, at::kFloat);
    groups.outer->all_gather(ring, filled(1, rank), "ring")->wait();
    EXPECT_TRUE(ring.equal(at::arange(rank % 2, rank % 2 + 8, 2, at::kFloat)));
  });
  const std::vector<CpGroups> two = make_local_groups(2);
  EXPECT_EQ(two[0].inner, nullptr);
}

// What fn throws on rank 0; rank 1 does nothing.
template <typename Fn>
CommError comm_error_of_rank_0(Fn fn, const LocalOptions& options = {}) {
  const auto groups = make_local_groups(2, options);
  try {
    fn(*groups[0].cp);
  } catch (const CommError& error) {
    return error;
  }
  ADD_FAILURE() << "no CommError";
  return {CommError::Kind::failed, ""};
}

TEST(LocalCommunicator, NamesRankOperationPeerAndStepOfAWaitThatRunsOut) {
  const CommError error = comm_error_of_rank_0([](Communicator& cp) {
    at::Tensor received = at::zeros({1}, at::kFloat);
    cp.set_deadline(Communicator::Clock::now() + 1ms);
    cp.exchange(received, 1, received, 1, "p2p forward step 2")->wait();
  });
  EXPECT_EQ(error.kind(), CommError::Kind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0"), HasSubstr("exchange"), HasSubstr("p2p forward step 2"),
                                  HasSubstr("from rank 1")));
}

TEST(LocalCommunicator, RefusesSeveralTensorsOfAnotherSizeThanWasSent) {
  EXPECT_THROW(run_ranks(2,
                         [](const CpGroups& groups, int rank) {
                           const std::array sends{filled(2, rank), filled(1 + rank, rank)};
                           const std::array receives{filled(2, 0), filled(1 + rank, 0)};
                           groups.cp->exchange_many(sends, 1 - rank, receives, 1 - rank, "turn")->wait();
                         }),
               CommError);
}

TEST(LocalCommunicator, BoundsTheBarrierAndNamesTheRankThatStaysAway) {
  const CommError error = comm_error_of_rank_0([](Communicator& cp) { cp.checked_barrier(7, 1ms); });
  EXPECT_EQ(error.kind(), CommError::Kind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("checked_barrier"), HasSubstr("from rank 1")));
}

TEST(LocalCommunicator, SeesInTheBarrierThatARankHasDoneOneOperationMore) {
  try {
    run_ranks(2, [](const CpGroups& groups, int rank) {
      at::Tensor value = at::zeros({1}, at::kFloat);
      if (rank == 1) static_cast<void>(groups.cp->all_reduce(value, ReduceOp::sum, "alone"));
      groups.cp->checked_barrier(7, 10s);
    });
    FAIL() << "no CommError";
  } catch (const CommError& error) {
    EXPECT_EQ(error.kind(), CommError::Kind::failed);
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has another tag or operation count"));
  }
}

TEST(LocalCommunicator, FailsEveryOperationOnceAborted) {
  const CommError error = comm_error_of_rank_0([](Communicator& cp) {
    at::Tensor received = at::zeros({1}, at::kFloat);
    const auto work = cp.exchange(received, 1, received, 1, "step");
    cp.abort();
    cp.abort();
    work->wait();
  });
  EXPECT_EQ(error.kind(), CommError::Kind::aborted);
}

// --- Windows ---------------------------------------------------------------------------------------------------------

const LocalOptions kWithWindows{.windows = true};

at::Tensor zero_bytes(std::int64_t count) {
  return at::zeros({count}, at::kByte);
}

// `rows` rows of `width` bytes from the source's first byte on, without gaps there.
Communicator::Put put_of(const at::Tensor& source, int peer, std::int64_t rows, std::int64_t width) {
  return {.peer = peer,
          .block = {.source = source.const_data_ptr(),
                    .rows = rows,
                    .width = width,
                    .source_stride = width,
                    .target_stride = width}};
}

TEST(LocalWindows, AreThereWhenAskedFor) {
  EXPECT_TRUE(make_local_groups(4, kWithWindows)[0].inner->has_windows());
  const auto without = make_local_groups(2);
  EXPECT_FALSE(without[0].cp->has_windows());
  EXPECT_THROW(static_cast<void>(without[0].cp->put_all({}, {}, {}, "step")), std::logic_error);
}

// Every rank writes 2 rows of 3 of its bytes, 4 apart, into the columns of each other rank's table that are its own.
TEST(LocalWindows, TakeRectanglesFromAllOthers) {
  const auto write = [](const CpGroups& groups, int rank) {
    const at::Tensor source = at::arange(10 * rank, 10 * rank + 8, at::kByte);
    const std::array windows{zero_bytes(1), zero_bytes(18)};
    std::vector<Communicator::Put> puts;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      puts.push_back(put_of(source, peer, 2, 3));
      puts.back().window = 1;
      puts.back().first = static_cast<std::int64_t>(3) * rank;
      puts.back().block.source_stride = 4;
      puts.back().block.target_stride = 9;
    }
    groups.cp->put_all(windows, {&source, 1}, puts, "all")->wait();
    at::Tensor expected = at::zeros({2, 3, 3}, at::kByte);
    for (int from = 0; from < 3; ++from) {
      if (from == rank) continue;
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
    at::Tensor source = filled(1, rank + 1);
    const at::Tensor window = filled(1, 0);
    const std::array puts{put_of(source, 1 - rank, 1, sizeof(float))};
    const auto work = groups.cp->put_all({&window, 1}, {&source, 1}, puts, "turn");
    source.fill_(7);
    groups.cp->checked_barrier(0, 10s);  // the peer has sent by now
    EXPECT_TRUE(window.equal(filled(1, 0)));
    work->wait();
    EXPECT_TRUE(window.equal(filled(1, 2 - rank)));
  };
  run_ranks(2, write, 1min, kWithWindows);
}

TEST(LocalWindows, MayBeEmptyAndStayUnwritten) {
  const auto write = [](const CpGroups& groups, int rank) {
    const at::Tensor window = zero_bytes(0);
    const std::array puts{put_of(window, 1 - rank, 0, 4), put_of(window, 1 - rank, 3, 0)};
    groups.cp->put_all({&window, 1}, {&window, 1}, puts, "nothing")->wait();
    groups.cp->put_all({}, {}, {}, "nothing at all")->wait();
  };
  run_ranks(2, write, 1min, kWithWindows);
}

// What rank 0 says of its own put.
std::string refusal_of(const Communicator::Put& put, const at::Tensor& source) {
  const auto groups = make_local_groups(2, kWithWindows);
  try {
    static_cast<void>(groups[0].cp->put_all({}, {&source, 1}, {&put, 1}, "step"));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LocalWindows, RefusePutsToNoOtherRankAndFromOutsideTheSources) {
  const at::Tensor source = zero_bytes(8);
  EXPECT_EQ(refusal_of(put_of(source, 1, 2, 4), source), "accepted");
  for (const int peer : {0, 2, -1}) {
    EXPECT_THAT(refusal_of(put_of(source, peer, 2, 4), source),
                AllOf(HasSubstr("rank 0 of 2: put_all (step)"), HasSubstr("to rank " + std::to_string(peer))));
  }
  EXPECT_THAT(refusal_of(put_of(source, 1, 3, 4), source), HasSubstr("outside the sources"));
  EXPECT_THAT(refusal_of(put_of(zero_bytes(8), 1, 2, 4), source), HasSubstr("outside the sources"));
}

// Of rank 0, whose only window has 8 bytes, when rank 1 puts this there.
CommError error_of_window(const Communicator::Put& put, const at::Tensor& source) {
  const auto groups = make_local_groups(2, kWithWindows);
  static_cast<void>(groups[1].cp->put_all({}, {&source, 1}, {&put, 1}, "step"));
  const at::Tensor window = zero_bytes(8);
  try {
    groups[0].cp->put_all({&window, 1}, {}, {}, "step")->wait();
  } catch (const CommError& error) {
    EXPECT_TRUE(window.equal(zero_bytes(8)));
    return error;
  }
  return {CommError::Kind::timeout, "no CommError"};
}

TEST(LocalWindows, NameBothRanksOfAPutThatDoesNotFit) {
  const at::Tensor source = at::full({8}, 1, at::kByte);
  EXPECT_STREQ(error_of_window(put_of(source, 0, 2, 4), source).what(), "no CommError");
  const auto expect_failed = [&](const Communicator::Put& put, const std::string& text) {
    const CommError error = error_of_window(put, source);
    EXPECT_EQ(error.kind(), CommError::Kind::failed);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 of 2: put_all (step): rank 1 puts"), HasSubstr(text)));
  };
  Communicator::Put late = put_of(source, 0, 2, 4);
  late.first = 1;
  expect_failed(late, "2 rows of 4 bytes, 4 apart, from byte 1 of window 0 on, of 8 bytes");
  Communicator::Put early = put_of(source, 0, 2, 4);
  early.first = -1;
  expect_failed(early, "from byte -1 of window 0");
  Communicator::Put wide = put_of(source, 0, 2, 4);
  wide.block.target_stride = 5;
  expect_failed(wide, "5 apart");
  Communicator::Put elsewhere = put_of(source, 0, 2, 4);
  elsewhere.window = 1;
  expect_failed(elsewhere, "window 1 on, of 1 windows");
}

TEST(LocalWindows, BoundTheWaitForOthersPuts) {
  const CommError error = comm_error_of_rank_0(
      [](Communicator& cp) {
        cp.set_deadline(Communicator::Clock::now() + 1ms);
        cp.put_all({}, {}, {}, "a2a forward")->wait();
      },
      kWithWindows);
  EXPECT_EQ(error.kind(), CommError::Kind::timeout);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("put_all (a2a forward)"), HasSubstr("from rank 1")));
}

// --- run_ranks -------------------------------------------------------------------------------------------------------

TEST(RunRanks, FreesTheOthersAndRethrowsWhatARankThrew) {
  EXPECT_THROW(run_ranks(3,
                         [](const CpGroups& groups, int rank) {
                           if (rank == 1) throw std::logic_error("rank 1");
                           groups.cp->checked_barrier(0, 1min);
                         }),
               std::logic_error);
}

}  // namespace
}  // namespace cp_pool
