#include "cp_core/testing/gpu_ranks.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

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

}  // namespace

int count_gpus() {
  static const int count = [] {
    int status = 0;
    waitpid(in_child([] { return linked_cuda_device().visible_devices(); }), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  }();
  return count;
}

CpGroups GpuRank::connect(const std::string& prefix) const {
  CpGroups groups = cuda_part<GpuGroups>().make(store, prefix, rank, size, kLongEnough, {.shares = shares});
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
  const int gpus = always_one ? 1 : std::max(count_gpus(), 1);
  const bool shares = always_one || gpus < size;
  std::vector<pid_t> children;
  children.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    const int gpu = shares ? rank * gpus / size : rank;
    children.push_back(in_child([&] {
      const auto store = c10::make_intrusive<c10d::FileStore>((folder / "store").string(), size);
      return run_rank({.rank = rank, .size = size, .shares = shares, .store = store}, gpu, body);
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

void end_all_ranks() {
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : kEndAll);
}

}  // namespace cp_pool
