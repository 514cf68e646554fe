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

struct GpuRank {
  int rank = 0;
  int size = 1;
  bool shares = false;  // ranks share a GPU
  c10::intrusive_ptr<c10d::Store> store;

  // The groups of all ranks, with a deadline of 20 s from now.
  [[nodiscard]] CpGroups connect(const std::string& prefix = "test/") const;
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

// Ends this rank and has its peers killed. For a rank that has shown what it had to show but cannot go on, while its
// peers may be waiting for it on their GPUs.
[[noreturn]] void end_all_ranks();

}  // namespace cp_pool
