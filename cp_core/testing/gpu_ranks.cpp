#include "cp_core/testing/gpu_ranks.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tuple>
#include <unistd.h>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "cases/testing/temporary_folder.h"
#include "cp_core/comm/nccl/gpu_groups.h"
#include "cp_core/testing/gpu_fixture.h"

namespace cp_pool {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongEnough = 20s;
constexpr unsigned kKillAfterSeconds = 300;
bool always_one = false;  // set by share_one_gpu

constexpr int kEndAll = 77;  // exit status of end_all_ranks

// Runs `body` in a child process, which exits with its result.
template <typename Body>
pid_t in_child(Body&& body) {
  std::fflush(nullptr);  // else the child would print the parent's buffer too
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(kKillAfterSeconds);
  const int code = body();
  std::fflush(nullptr);
  _exit(code);
}

std::string end_of(int status) {
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGALRM ? fmt::format("hung for {} s", kKillAfterSeconds)
                                       : fmt::format("died of signal {}", WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exited with {}, see above", WEXITSTATUS(status));
}

int run_rank(const GpuRank& rank, int gpu, const std::function<void(const GpuRank&)>& body) {
  try {
    linked_cuda_device().use_device(gpu);
    body(rank);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", rank.rank, error.what());
    return 2;
  }
  return testing::Test::HasFailure() ? 1 : 0;
}

struct Placed {
  GpuRank rank;
  int gpu = 0;
};

Placed place(int rank, int size) {
  const int gpus = always_one ? 1 : std::max(count_gpus(), 1);
  const bool shares = always_one || gpus < size;
  return {.rank = {.rank = rank, .size = size, .shares = shares}, .gpu = shares ? rank * gpus / size : rank};
}

// Ranks that wait for bodies to run. A body is code of this program, so a forked rank finds it at the same address.
class WarmRanks {
 public:
  explicit WarmRanks(int size) {
    for (int number = 0; number < size; ++number) {
      std::array<int, 2> ends{};
      if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw std::runtime_error("no socket pair");
      const Placed placed = place(number, size);
      ranks_.push_back({.pid = in_child([&] { return serve(placed, ends[1]); }), .socket = ends[0]});
      close(ends[1]);
    }
  }
  WarmRanks(const WarmRanks&) = delete;
  WarmRanks& operator=(const WarmRanks&) = delete;
  ~WarmRanks() {
    for (const Rank& rank : ranks_) {
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
      close(rank.socket);
    }
  }

  // Fails the running test, and returns false, if a rank fails.
  bool run(void (*body)(const GpuRank&)) {
    const Order order{.body = body, .number = ++orders_};
    // A rank that has ended takes no order and gives no answer.
    for (const Rank& rank : ranks_) send(rank.socket, &order, sizeof order, MSG_NOSIGNAL);
    bool all_well = true;
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      bool well = false;
      const bool answered = recv(ranks_[number].socket, &well, sizeof well, MSG_WAITALL) == sizeof well;
      EXPECT_TRUE(answered) << "warm rank " << number << " of " << ranks_.size() << " has ended";
      EXPECT_TRUE(!answered || well) << "warm rank " << number << " of " << ranks_.size() << " failed, see above";
      all_well = all_well && well;
    }
    return all_well;
  }

 private:
  struct Rank {
    pid_t pid = 0;
    int socket = -1;
  };
  struct Order {
    void (*body)(const GpuRank&) = nullptr;
    int number = 0;
  };

  // What a rank does until it is killed.
  int serve(const Placed& placed, int socket) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    GpuRank rank = placed.rank;
    WarmGroups warm;
    rank.warm = &warm;
    Order order;
    while (alarm(0), recv(socket, &order, sizeof order, MSG_WAITALL) == sizeof order) {
      alarm(kKillAfterSeconds);
      const std::string store = (folder_ / fmt::format("store.{}", order.number)).string();
      rank.store = c10::make_intrusive<c10d::FileStore>(store, rank.size);
      warm.used = false;
      const auto body = [&order](const GpuRank& of) {
        order.body(of);
        c10::cuda::device_synchronize();
        if (of.warm->used) of.warm->groups.cp->checked_barrier(order.number, kLongEnough);
        c10::cuda::CUDACachingAllocator::emptyCache();
      };
      const bool well = run_rank(rank, placed.gpu, body) == 0;
      std::fflush(nullptr);
      if (send(socket, &well, sizeof well, MSG_NOSIGNAL) != sizeof well) break;
    }
    return 1;
  }

  test::TemporaryFolder folder_;
  std::vector<Rank> ranks_;
  int orders_ = 0;
};

}  // namespace

int count_gpus() {
  static const int count = [] {
    int status = 0;
    waitpid(in_child([] { return linked_cuda_device().visible_devices(); }), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  }();
  return count;
}

const CpGroups& GpuRank::groups() const {
  if (!warm->groups.cp) warm->groups = connect("warm/");
  warm->used = true;
  warm->groups.cp->set_deadline(Communicator::Clock::now() + kLongEnough);
  return warm->groups;
}

CpGroups GpuRank::connect(const std::string& prefix) const {
  CpGroups groups = cuda_part<GpuGroups>().make(store, prefix, rank, size, kLongEnough, shares);
  groups.cp->set_deadline(Communicator::Clock::now() + kLongEnough);
  return groups;
}

void GpuRank::tell(const std::string& event) const {
  store->set(event, std::vector<std::uint8_t>{1});
}

void GpuRank::await(const std::string& event) const {
  store->wait({event}, kLongEnough);
}

void share_one_gpu(bool always) {
  always_one = always;
}

void on_gpu_ranks(int size, const std::function<void(const GpuRank&)>& body) {
  const test::TemporaryFolder folder;
  std::vector<pid_t> children;
  children.reserve(static_cast<std::size_t>(size));
  for (int number = 0; number < size; ++number) {
    const Placed placed = place(number, size);
    children.push_back(in_child([&] {
      GpuRank rank = placed.rank;
      rank.store = c10::make_intrusive<c10d::FileStore>((folder / "store").string(), size);
      return run_rank(rank, placed.gpu, body);
    }));
  }
  std::vector<bool> killed(children.size(), false);
  for (std::size_t left = children.size(); left > 0; --left) {
    int status = 0;
    const pid_t child = waitpid(0, &status, 0);
    const auto rank = static_cast<std::size_t>(std::ranges::find(children, child) - children.begin());
    ASSERT_LT(rank, children.size()) << "waitpid gave " << child;
    children[rank] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kEndAll) {
      for (std::size_t peer = 0; peer < children.size(); ++peer) {
        if (children[peer] == 0) continue;
        kill(children[peer], SIGKILL);
        killed[peer] = true;
      }
    } else if (!killed[rank]) {
      EXPECT_EQ(end_of(status), "") << "rank " << rank << " of " << size;
    }
  }
}

void on_warm_gpu_ranks(int size, void (*body)(const GpuRank&)) {
  const char* const peer_copies = std::getenv("CP_POOL_PEER_COPIES");
  static std::map<std::tuple<int, bool, std::string>, WarmRanks> all;
  const std::tuple key{size, always_one, std::string(peer_copies == nullptr ? "" : peer_copies)};
  if (!all.try_emplace(key, size).first->second.run(body)) all.erase(key);
}

void end_all_ranks() {
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : kEndAll);
}

}  // namespace cp_pool
