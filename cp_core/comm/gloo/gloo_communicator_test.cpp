#include "cp_core/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <set>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "cases/testing/error_text.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using Clock = Communicator::Clock;

constexpr auto kLongEnough = 20s;

at::Tensor filled(std::initializer_list<std::int64_t> shape, double value, at::ScalarType dtype = at::kFloat) {
  return at::full(shape, value, at::TensorOptions().dtype(dtype));
}

// Runs `body(rank, groups)` on one thread per rank, once all ranks are connected. Rethrows the first failure.
void run_ranks(int size, const std::function<void(int, CpGroups&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch all_connected(size);
  std::vector<std::future<void>> ranks;
  ranks.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      CpGroups groups;
      try {
        groups = make_gloo_groups(store, "test/", rank, size);
      } catch (...) {
        all_connected.count_down();
        throw;
      }
      all_connected.arrive_and_wait();
      groups.cp->set_deadline(Clock::now() + kLongEnough);
      body(rank, groups);
    }));
  }
  for (auto& rank : ranks) rank.wait();
  for (auto& rank : ranks) rank.get();
}

std::optional<CommError> error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const CommError& error) {
    return error;
  }
  return std::nullopt;
}

// --- Ranks in processes; these tests come first, while this process has no other threads -----------------------------

// Forks `size` ranks and returns their exit codes (128 + signal if killed).
std::vector<int> fork_ranks(int size, const std::function<int(int, CpGroups&)>& body) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("gloo_communicator_test.{}", getpid());
  std::filesystem::create_directory(folder);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 99;
      try {
        const auto store = c10::make_intrusive<c10d::FileStore>((folder / "store").string(), size);
        CpGroups groups = make_gloo_groups(store, "test/", rank, size);
        groups.cp->set_deadline(Clock::now() + kLongEnough);
        code = body(rank, groups);
      } catch (const std::exception& error) {
        fmt::print(stderr, "rank {}: {}\n", rank, error.what());
      }
      _exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  std::filesystem::remove_all(folder);
  return codes;
}

TEST(AGlooProcessRank, ExchangesWithItsPeers) {
  const auto codes = fork_ranks(2, [](int rank, CpGroups& groups) {
    at::Tensor got = filled({100000}, -1);
    groups.cp->exchange(filled({100000}, rank), 1 - rank, got, 1 - rank, "test")->wait();
    return at::equal(got, filled({100000}, 1 - rank)) ? 0 : 1;
  });
  EXPECT_THAT(codes, testing::ElementsAre(0, 0));
}

TEST(AGlooProcessRank, SeesThatAPeerDied) {
  const auto codes = fork_ranks(2, [](int rank, CpGroups& groups) {
    at::Tensor sum = filled({4}, 1);
    groups.cp->all_reduce(sum, ReduceOp::sum, "both connected")->wait();
    if (rank == 1) std::abort();
    const auto error = error_of([&] { groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait(); });
    return error && error->kind() == CommError::Kind::failed ? 0 : 1;
  });
  EXPECT_THAT(codes, testing::ElementsAre(0, 128 + SIGABRT));
}

// --- Operations ------------------------------------------------------------------------------------------------------

class GlooOperation : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooOperation, testing::Range(1, 9));

TEST_P(GlooOperation, ExchangeMovesARingOfAnyDtypeAndSize) {
  const int n = GetParam();
  run_ranks(n, [n](int rank, CpGroups& groups) {
    const int next = (rank + 1) % n;
    const int previous = (rank + n - 1) % n;
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong}) {
      at::Tensor got = filled({3 + previous, 2}, -1, dtype);
      groups.cp->exchange(filled({3 + rank, 2}, rank, dtype), next, got, previous, "test")->wait();
      EXPECT_TRUE(at::equal(got, filled({3 + previous, 2}, previous, dtype)));
    }
  });
}

TEST_P(GlooOperation, ZeroRowsAreCarried) {
  const int n = GetParam();
  run_ranks(n, [n](int rank, CpGroups& groups) {
    const at::Tensor none = at::empty({0, 4, 8});
    at::Tensor out = at::empty({0, 4, 8});
    groups.cp->exchange(none, (rank + 1) % n, out, (rank + n - 1) % n, "test")->wait();
    groups.cp->all_gather(out, none, "test")->wait();
    groups.cp->reduce_scatter(out, none, "test")->wait();
    groups.cp->all_reduce(out, ReduceOp::sum, "test")->wait();
    groups.cp->checked_barrier(1, kLongEnough);
  });
}

TEST_P(GlooOperation, AllGatherIsInRankOrder) {
  const int n = GetParam();
  run_ranks(n, [n](int rank, CpGroups& groups) {
    at::Tensor out = filled({n, 5}, -1);
    groups.cp->all_gather(out, filled({1, 5}, rank), "test")->wait();
    EXPECT_TRUE(at::equal(out, at::arange(n, at::kFloat).view({n, 1}).expand({n, 5})));
  });
}

TEST_P(GlooOperation, ReduceScatterSumsItsPart) {
  const int n = GetParam();
  run_ranks(n, [n](int rank, CpGroups& groups) {
    at::Tensor out = filled({1, 3}, -1);
    groups.cp->reduce_scatter(out, at::arange(n, at::kFloat).view({n, 1}).expand({n, 3}).mul(rank + 1), "test")->wait();
    EXPECT_TRUE(at::equal(out, filled({1, 3}, rank * n * (n + 1) / 2.0)));
  });
}

TEST_P(GlooOperation, AllReduceSumsAndFindsTheLargest) {
  const int n = GetParam();
  run_ranks(n, [n](int rank, CpGroups& groups) {
    at::Tensor sum = filled({3}, rank, at::kBFloat16);
    groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
    EXPECT_TRUE(at::equal(sum, filled({3}, n * (n - 1) / 2.0, at::kBFloat16)));
    at::Tensor largest = at::tensor({-1.0 * rank, 1.0 * rank});
    groups.cp->all_reduce(largest, ReduceOp::max, "test")->wait();
    EXPECT_TRUE(at::equal(largest, at::tensor({0.0, n - 1.0})));
  });
}

TEST(GlooCommunicator, SumsAreRoundedOnceAndTheSameOnEveryRank) {
  // 256 + 1 + 1 + 1 in bf16: each addition alone would round back to 256.
  run_ranks(4, [](int rank, CpGroups& groups) {
    at::Tensor sum = filled({1}, rank == 0 ? 256 : 1, at::kBFloat16);
    groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
    EXPECT_EQ(sum.item<float>(), 260.0F);  // 259 rounds to even
  });
}

TEST(GlooCommunicator, OperationsInFlightDoNotMixUp) {
  run_ranks(2, [](int rank, CpGroups& groups) {
    at::Tensor first = filled({1}, -1);
    at::Tensor second = filled({1}, -1);
    auto one = groups.cp->exchange(filled({1}, 10 + rank), 1 - rank, first, 1 - rank, "one");
    auto two = groups.cp->exchange(filled({1}, 20 + rank), 1 - rank, second, 1 - rank, "two");
    two->wait();
    one->wait();
    EXPECT_EQ(first.item<float>(), 10 + (1 - rank));
    EXPECT_EQ(second.item<float>(), 20 + (1 - rank));
  });
}

class GlooPairs : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, GlooPairs, testing::Values(4, 6, 8));

TEST_P(GlooPairs, AreOfAdjacentRanksAndRingsOfEqualParity) {
  run_ranks(GetParam(), [rings_of = GetParam() / 2](int rank, CpGroups& groups) {
    at::Tensor pair = at::zeros({2}, at::kLong);
    groups.inner->all_gather(pair, at::full({1}, rank, at::kLong), "test")->wait();
    EXPECT_TRUE(at::equal(pair, at::arange(2).add(rank / 2 * 2)));
    at::Tensor ring = at::zeros({rings_of}, at::kLong);
    groups.outer->all_gather(ring, at::full({1}, rank, at::kLong), "test")->wait();
    EXPECT_TRUE(at::equal(ring, at::arange(rings_of).mul(2).add(rank % 2)));
  });
}

TEST(GlooGroups, HaveNoPairsBelowFourRanks) {
  run_ranks(2, [](int, CpGroups& groups) {
    EXPECT_EQ(groups.inner, nullptr);
    EXPECT_EQ(groups.outer, nullptr);
  });
}

// --- Failures --------------------------------------------------------------------------------------------------------

TEST(GlooDeadline, EndsAWaitNamingRankOperationPeerAndStep) {
  run_ranks(2, [](int rank, CpGroups& groups) {
    if (rank == 1) {
      EXPECT_TRUE(error_of([&] { groups.cp->checked_barrier(1, kLongEnough); }));  // lasts until rank 0 gives up
      return;
    }
    groups.cp->set_deadline(Clock::now() + 50ms);
    at::Tensor got = filled({1}, 0);
    const auto error = error_of([&] { groups.cp->exchange(filled({1}, 0), 1, got, 1, "p2p step 3")->wait(); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr("rank 0: exchange, p2p step 3: receive from rank 1"), HasSubstr("timed out")));
  });
}

// Peers notice an abort by closed connections, of which Gloo closes one every 10 ms at worst. The bound leaves room for
// a busy machine and is well below the deadline, which could end the wait, too.
constexpr auto kFreed = kLongEnough / 2;

TEST(GlooAbort, FreesAWaitOnThisRankAtOnce) {
  std::latch freed(1);
  run_ranks(2, [&](int rank, CpGroups& groups) {
    if (rank == 1) return freed.wait();
    at::Tensor got = filled({1}, 0);
    auto work = groups.cp->exchange(filled({1}, 0), 1, got, 1, "test");
    std::jthread aborter([&] { groups.cp->abort(); });  // may come before or during the wait
    const auto start = Clock::now();
    const auto error = error_of([&] { work->wait(); });
    EXPECT_LT(Clock::now() - start, kFreed);
    freed.count_down();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::aborted);
  });
}

TEST(GlooAbort, FreesEveryPeerInTheCollective) {
  for (const int n : {2, 4, 8}) {
    std::latch started(n - 1);
    std::atomic<Clock::time_point> aborted_at{};
    run_ranks(n, [&](int rank, CpGroups& groups) {
      if (rank == 0) {
        started.wait();
        aborted_at = Clock::now();
        groups.cp->abort();
        return;
      }
      at::Tensor sum = filled({1000}, 1);
      auto work = groups.cp->all_reduce(sum, ReduceOp::sum, "test");
      started.count_down();
      EXPECT_TRUE(error_of([&] { work->wait(); }));
      EXPECT_LT(Clock::now() - aborted_at.load(), kFreed) << n << " ranks, rank " << rank;
    });
  }
}

TEST(GlooAbort, ReachesRanksThatWaitForOthers) {
  // Rank 3 waits for 2, 2 for 1, 1 for 0, and rank 0 aborts. Each rank has done a different number of operations
  // before, so no message matches a receive.
  std::latch started(3);
  run_ranks(4, [&](int rank, CpGroups& groups) {
    if (rank == 0) {
      started.wait();
      groups.cp->abort();
      return;
    }
    at::Tensor got = filled({1}, 0);
    for (int i = 0; i < rank; ++i) groups.cp->exchange(filled({1}, 1), rank, got, rank, "with itself")->wait();
    auto work = groups.cp->exchange(filled({1}, 1), (rank + 1) % 4, got, rank - 1, "test");
    started.count_down();
    const auto start = Clock::now();
    EXPECT_TRUE(error_of([&] { work->wait(); }));
    EXPECT_LT(Clock::now() - start, kFreed);
  });
}

TEST(GlooAbort, FailsEveryLaterOperationOfEveryGroup) {
  run_ranks(4, [](int, CpGroups& groups) {
    groups.inner->abort();
    groups.inner->abort();
    at::Tensor sum = filled({1}, 1);
    for (auto* group : {groups.cp.get(), groups.inner.get(), groups.outer.get()}) {
      const auto error = error_of([&] { group->all_reduce(sum, ReduceOp::sum, "test")->wait(); });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->kind(), CommError::Kind::aborted);
    }
  });
}

// Gathers the world ranks of a group's members.
at::Tensor world_ranks(Communicator& group, int world_rank) {
  at::Tensor got = filled({group.size()}, -1);
  group.all_gather(got, filled({1}, world_rank), "who is here")->wait();
  return got;
}

TEST(GlooGroups, AreDivided) {
  run_ranks(8, [](int rank, CpGroups& groups) {
    for (const int parts : {2, 4, 8}) {
      const CpGroups own = groups.cp->divided(strided(8, parts));
      EXPECT_EQ(own.cp->rank(), rank / parts);
      EXPECT_EQ(own.cp->size(), 8 / parts);
      EXPECT_TRUE(world_ranks(*own.cp, rank).equal(at::arange(rank % parts, 8, parts, at::kFloat))) << parts;
      own.cp->checked_barrier(parts, kLongEnough);
      EXPECT_EQ(groups.cp->divided(strided(8, parts)).cp, own.cp) << "made once";
      EXPECT_EQ(own.inner == nullptr, parts != 2) << "pairs need four ranks";
    }
    const auto neighbours = groups.cp->divided({.groups = {0, 0, 0, 0, 1, 1, 1, 1}}).cp;
    EXPECT_TRUE(world_ranks(*neighbours, rank).equal(at::arange(rank / 4 * 4, rank / 4 * 4 + 4, at::kFloat)));
    neighbours->checked_barrier(9, kLongEnough);
    const CpGroups own = groups.cp->divided(strided(8, 2));
    const int first = rank % 2 + rank / 4 * 4;
    EXPECT_TRUE(world_ranks(*own.inner, rank).equal(at::arange(first, first + 4, 2, at::kFloat)));
    EXPECT_TRUE(world_ranks(*own.outer, rank).equal(at::arange(rank % 4, rank % 4 + 8, 4, at::kFloat)));
    const CpGroups fours = groups.cp->divided(strided(8, 1, 4));
    EXPECT_TRUE(world_ranks(*fours.cp, rank).equal(at::arange(8, at::kFloat)));
    EXPECT_TRUE(world_ranks(*fours.inner, rank).equal(at::arange(rank / 4 * 4, rank / 4 * 4 + 4, at::kFloat)));
    EXPECT_TRUE(world_ranks(*fours.outer, rank).equal(at::arange(rank % 4, rank % 4 + 8, 4, at::kFloat)));
    EXPECT_TRUE(world_ranks(*groups.inner, rank).equal(at::arange(rank / 2 * 2, rank / 2 * 2 + 2, at::kFloat)));
    ASSERT_NE(groups.cp->divided(strided(8, 1, 2)).inner, nullptr);
    std::set<std::string> words;
    for (const BegunInGroup& begun : groups.cp->begun()) EXPECT_TRUE(words.insert(begun.group).second) << begun.group;
  });
}

TEST(GlooGroups, KeepTheirMessagesApartWhileTheirOperationsOverlap) {
  struct Gather {
    std::shared_ptr<Communicator> group;
    std::vector<int> members;  // world ranks
    int base = 0;              // added to the values that the group sends
    at::Tensor got{};
    Communicator::WorkPtr work{};
  };
  run_ranks(4, [](int rank, CpGroups& groups) {
    const GroupRanks all = group_ranks(rank, 4);
    std::vector<Gather> gathers;
    gathers.push_back({groups.cp, all.cp, 100});
    gathers.push_back({groups.inner, all.inner, 200});
    gathers.push_back({groups.outer, all.outer, 300});
    gathers.push_back({groups.cp->divided(strided(4, 2)).cp, group_ranks(rank, 4, strided(4, 2)).cp, 400});
    std::ranges::rotate(gathers, gathers.begin() + rank);  // peers begin in different orders
    for (Gather& gather : gathers) {
      gather.got = filled({gather.group->size()}, -1);
      gather.work = gather.group->all_gather(gather.got, filled({1}, gather.base + rank), "test");
    }
    for (Gather& gather : gathers) {
      gather.work->wait();
      const at::Tensor members = at::tensor(at::ArrayRef<int>(gather.members)).to(at::kFloat);
      EXPECT_TRUE(gather.got.equal(members.add(gather.base))) << gather.got;
    }
  });
}

TEST(GlooGroups, NameTheRankOfTheWorldThatIsElsewhere) {
  run_ranks(4, [](int rank, CpGroups& groups) {
    const auto own = groups.cp->divided(strided(4, 2)).cp;
    if (rank % 2 == 0) return own->checked_barrier(1, kLongEnough);
    EXPECT_THAT(test::error_text<CommError>([&] { own->checked_barrier(rank == 3 ? 7 : 1, kLongEnough); }),
                HasSubstr("rank 3 is at tag 7"));
  });
}

TEST(GlooAbort, OfAllRanksEndsParts) {
  run_ranks(4, [](int rank, CpGroups& groups) {
    const auto own = groups.cp->divided(strided(4, 2)).cp;
    if (rank % 2 == 1) return;
    at::Tensor sum = filled({1}, 1);
    if (rank == 0) groups.cp->abort();
    const auto error = error_of([&] { own->all_reduce(sum, ReduceOp::sum, "test")->wait(); });
    ASSERT_TRUE(error) << rank;
    EXPECT_TRUE(rank != 0 || error->kind() == CommError::Kind::aborted);
  });
}

TEST(GlooGroups, AreMadeAgainOnTheSameStoreAfterAnAbort) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto rank_body = [&](int rank) {
    for (int generation = 0; generation < 3; ++generation) {
      CpGroups groups = make_gloo_groups(store, fmt::format("gen/{}/", generation), rank, 2);
      groups.cp->set_deadline(Clock::now() + kLongEnough);
      at::Tensor sum = filled({1}, 1);
      groups.cp->all_reduce(sum, ReduceOp::sum, "test")->wait();
      EXPECT_EQ(sum.item<float>(), 2.0F);
      groups.cp->checked_barrier(generation, kLongEnough);
      groups.cp->abort();
    }
  };
  std::jthread peer([&] { rank_body(1); });
  rank_body(0);
}

TEST(GlooGroups, ThatNeverCompleteAreGivenUp) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THAT(test::error_text<CommError>([&] { make_gloo_groups(store, "test/", 0, 2, {.connect_timeout = 100ms}); }),
              HasSubstr("rank 0: connecting 2 ranks"));
}

TEST(GlooPlaces, NameTheRanksThatListenWhereAConnectionFailed) {
  c10d::HashStore store;
  tell_place(store, 0, "tcp, iface=eth0, addr=[10.77.0.1]");
  tell_place(store, 2, "tcp, iface=eth0, addr=[10.77.0.2]");
  tell_place(store, 3, "tcp, iface=eth0, addr=[10.77.0.2]");
  tell_place(store, 4, "of another kind");
  const std::string error = "timed out connecting: SO_ERROR: No route to host, remote=[10.77.0.";
  EXPECT_THAT(unreached(store, 5, error + "1]:2$3"), HasSubstr(" cannot reach rank 0 on host "));
  EXPECT_THAT(unreached(store, 5, error + "2]:2$3"),
              testing::AllOf(HasSubstr(" cannot reach ranks 2, 3 on host "), HasSubstr("(10.77.0.2)")));
  EXPECT_EQ(unreached(store, 5, error + "3]:2$3"), "");
  EXPECT_EQ(unreached(store, 5, "connection refused"), "");
}

TEST(GlooGroups, ListenOnTheInterfaceThatIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto connect = [&](int rank) {
    return make_gloo_groups(store, "test/", rank, 2, {.host = "no.such.host", .interface = "lo"});
  };
  std::future<CpGroups> peer = std::async(std::launch::async, connect, 1);
  const CpGroups own = connect(0);  // kept, since its destruction would cut off a peer that is still connecting
  EXPECT_EQ(own.cp->size(), 2);
  EXPECT_EQ(peer.get().cp->size(), 2);

  EXPECT_THAT(test::error_text<CommError>([&] { make_gloo_groups(store, "other/", 0, 2, {.interface = "cp-pool0"}); }),
              HasSubstr("connecting 2 ranks over cp-pool0: this machine has no such network interface"));
}

TEST(GlooWork, MayBeDroppedUnfinished) {
  run_ranks(2, [](int rank, CpGroups& groups) {
    at::Tensor got = filled({1}, 0);
    error_of([&] { (void)groups.cp->exchange(filled({1}, 0), 1 - rank, got, 1 - rank, "dropped"); });
    groups.cp->abort();  // an exception on its way up leads to this, too
  });
}

// --- Barrier ---------------------------------------------------------------------------------------------------------

TEST(GlooBarrier, NamesTheRankWhoseTagDiffers) {
  run_ranks(3, [](int rank, CpGroups& groups) {
    EXPECT_THAT(test::error_text<CommError>([&] { groups.cp->checked_barrier(rank == 2 ? 8 : 7, kLongEnough); }),
                HasSubstr("rank 2"));
  });
}

TEST(GlooBarrier, NamesTheRankThatDidMoreOperations) {
  run_ranks(2, [](int rank, CpGroups& groups) {
    at::Tensor got = filled({1}, 0);
    Communicator::WorkPtr unmatched;
    if (rank == 1) unmatched = groups.cp->exchange(filled({1}, 0), 0, got, 0, "too much");
    EXPECT_THAT(test::error_text<CommError>([&] { groups.cp->checked_barrier(7, kLongEnough); }), HasSubstr("rank 1"));
  });
}

TEST(GlooBarrier, NamesTheRankThatDidNotArrive) {
  std::latch given_up(1);
  run_ranks(2, [&](int rank, CpGroups& groups) {
    if (rank == 1) return given_up.wait();
    const auto error = error_of([&] { groups.cp->checked_barrier(7, 50ms); });
    given_up.count_down();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), CommError::Kind::timeout);
    EXPECT_THAT(error->what(), HasSubstr("receive from rank 1"));
  });
}

TEST(GlooBarrier, IsGivenUpFirstByRank0WhichKnowsWhoIsMissing) {
  // With this limit rank 0 has 100 ms more patience than it needs, which it may still lose on a busy machine.
  constexpr int kTries = 5;
  std::optional<CommError> of_rank_0;
  for (int i = 0; i < kTries && (!of_rank_0 || of_rank_0->kind() != CommError::Kind::timeout); ++i) {
    std::latch enters(1);
    std::latch given_up(3);
    run_ranks(4, [&](int rank, CpGroups& groups) {
      if (rank == 3) return given_up.wait();
      if (rank == 0) enters.count_down();
      if (rank != 0) enters.wait();
      const auto error = error_of([&] { groups.cp->checked_barrier(7, 2s); });
      if (rank == 0) of_rank_0 = error;
      given_up.count_down();
      EXPECT_TRUE(error) << rank;
    });
  }
  ASSERT_TRUE(of_rank_0);
  EXPECT_EQ(of_rank_0->kind(), CommError::Kind::timeout);
  EXPECT_THAT(of_rank_0->what(), HasSubstr("receive from rank 3"));
}

TEST(GlooBarrier, TellsEveryRankWhoIsElsewhere) {
  run_ranks(4, [](int rank, CpGroups& groups) {
    groups.cp->checked_barrier(1, kLongEnough);
    const auto error = error_of([&] { groups.cp->checked_barrier(rank == 3 ? 8 : 7, kLongEnough); });
    ASSERT_TRUE(error) << rank;
    if (rank != 0) return;  // the other ranks may notice the closed connections first
    EXPECT_THAT(error->what(), HasSubstr("rank 3 is at tag 8 after 0 operations, but rank 0"));
  });
}

TEST(GlooBarrier, IsNotPassedBeforeARankFarAwayHasCome) {
  std::atomic<bool> arrives{false};
  run_ranks(10, [&](int rank, CpGroups& groups) {
    at::Tensor got = filled({1}, 0);
    if (rank == 9) {
      groups.cp->exchange(filled({1}, 0), 1, got, 1, "the others wait")->wait();
      arrives = true;
    } else if (rank == 1) {
      groups.cp->exchange(filled({1}, 0), 9, got, 9, "the others wait")->wait();
    } else {
      groups.cp->exchange(filled({1}, 0), rank, got, rank, "with itself")->wait();
    }
    groups.cp->checked_barrier(1, kLongEnough);
    EXPECT_TRUE(arrives);
  });
}

TEST(GlooBarrier, OfAllRanksComparesTheirInnerAndOuterGroups) {
  run_ranks(4, [](int rank, CpGroups& groups) {
    for (const auto& group : {groups.cp, groups.inner, groups.outer}) group->checked_barrier(6, kLongEnough);
    at::Tensor got = filled({1}, 0);
    Communicator::WorkPtr unmatched;
    const int other = 1 - groups.outer->rank();
    if (rank == 3) unmatched = groups.outer->exchange(filled({1}, 0), other, got, other, "too much");
    const auto error = error_of([&] { groups.cp->checked_barrier(7, kLongEnough); });
    ASSERT_TRUE(error) << rank;
    if (rank != 0) return;
    EXPECT_THAT(error->what(),
                HasSubstr("rank 3 is at tag 7 after 1 operations of its outer group, but rank 1 at tag 7"));
  });
}

// An inner group need not compare again what the barrier of all ranks has compared, only the operations begun since.
TEST(GlooBarrier, OfAnInnerGroupComparesWhatWasBegunAfterThatOfAllRanks) {
  run_ranks(4, [](int, CpGroups& groups) {
    groups.cp->checked_barrier(7, kLongEnough);
    groups.inner->checked_barrier(7, kLongEnough);
    at::Tensor got = filled({1}, 0);
    const int other = 1 - groups.inner->rank();
    const int times = groups.inner->rank() + 1;
    std::vector<Communicator::WorkPtr> begun;
    for (int i = 0; i < times; ++i) {
      begun.push_back(groups.inner->exchange(filled({1}, 0), other, got, other, "once or twice"));
    }
    const auto error = error_of([&] { groups.inner->checked_barrier(7, kLongEnough); });
    ASSERT_TRUE(error);
    if (groups.inner->rank() != 0) return;
    EXPECT_THAT(error->what(), HasSubstr("after 2 operations, but rank"));
  });
}

// The numbers of operations that a rank has begun in the groups that begun() describes with these words.
std::vector<std::int64_t> begun_in(const CpGroups& groups, const std::string& words) {
  std::vector<std::int64_t> out;
  for (const BegunInGroup& begun : groups.cp->begun()) {
    if (begun.group == words) out.push_back(begun.operations);
  }
  return out;
}

TEST(GlooGroups, TellWhatHasBegunInEach) {
  run_ranks(4, [](int rank, CpGroups& groups) {
    at::Tensor got = filled({1}, 0);
    groups.cp->exchange(filled({1}, 0), rank, got, rank, "with itself")->wait();
    const int self = groups.inner->rank();
    for (int i = 0; i < 2; ++i) groups.inner->exchange(filled({1}, 0), self, got, self, "with itself")->wait();
    EXPECT_THAT(begun_in(groups, ""), testing::ElementsAre(1));
    EXPECT_THAT(begun_in(groups, " of its inner group"), testing::ElementsAre(2));
    EXPECT_THAT(begun_in(groups, " of its outer group"), testing::ElementsAre(0));
    const BegunInGroup inner = groups.cp->begun().at(1);
    EXPECT_EQ(inner.first_rank, rank / 2 * 2);
    const CpGroups part = groups.cp->divided(strided(4, 2));
    const int own = part.cp->rank();
    part.cp->exchange(filled({1}, 0), own, got, own, "with itself")->wait();
    const auto all = groups.cp->begun();
    const auto of_part = std::ranges::find(all, " in the groups [[0, 2], [1, 3]]", &BegunInGroup::group);
    ASSERT_NE(of_part, all.end());
    EXPECT_EQ(of_part->operations, 1);
    EXPECT_EQ(of_part->first_rank, rank % 2);
  });
}

TEST(GlooBarrier, MayFollowAPassedDeadline) {
  run_ranks(2, [](int, CpGroups& groups) {
    groups.cp->set_deadline(Clock::now() - 1s);
    groups.cp->checked_barrier(7, kLongEnough);
  });
}

}  // namespace
}  // namespace cp_pool
