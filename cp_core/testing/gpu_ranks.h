// Runs ranks in processes of their own, as in a worker group. Each rank has its own GPU, or ranks share if there are
// fewer GPUs than ranks. The parent must not have used CUDA, which does not survive a fork.
#pragma once

#include <functional>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Returns the number of visible GPUs, counted in a child process.
int count_gpus();

// What a warm rank keeps between tests.
struct WarmGroups {
  CpGroups groups;
  bool used = false;  // by the current test
};

struct GpuRank {
  int rank = 0;
  int size = 1;
  bool shares = false;                         // ranks share a GPU
  c10::intrusive_ptr<c10d::Store> store = {};  // of this test alone
  WarmGroups* warm = nullptr;

  // The groups of all ranks, with a deadline of 20 s from now.
  [[nodiscard]] CpGroups connect(const std::string& prefix = "test/") const;
  // Those that all tests on the same warm ranks share, for tests that leave them in order.
  [[nodiscard]] const CpGroups& groups() const;
  // Announce an event to the other ranks, and wait until a rank has announced it.
  void tell(const std::string& event) const;
  void await(const std::string& event) const;
};

// true: the ranks of on_gpu_ranks all share the first GPU from now on. false: they share only if there are too few
// GPUs.
void share_one_gpu(bool always);

// Forks `size` ranks and runs `body` in each. A failed expectation is printed by the rank and fails this test. A rank
// that takes longer than 5 minutes is killed.
void on_gpu_ranks(int size, const std::function<void(const GpuRank&)>& body);

// Runs `body` on warm ranks: forked for the first test of so many ranks and kept for later ones, so that these need not
// make contexts and connections again. After the body the device must be idle, and groups() at the same place on every
// rank. For tests that change nothing else of the process. Ranks of a failed test are not used again.
void on_warm_gpu_ranks(int size, void (*body)(const GpuRank&));

// Ends this rank and has its peers killed. For a rank that has shown what it had to show but cannot go on, while its
// peers may be waiting for it on their GPUs.
[[noreturn]] void end_all_ranks();

}  // namespace cp_pool
