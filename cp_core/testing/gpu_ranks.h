// Ranks in processes of their own, as in a worker group: one GPU each, or sharing the GPUs where there are fewer than
// ranks. The parent must not have used CUDA, which does not survive a fork.
#pragma once

#include <functional>
#include <string>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "cp_core/comm/communicator.h"

namespace cp_pool {

// Counted in a child process.
int count_gpus();

struct GpuRank {
  int rank = 0;
  int size = 1;
  bool shares = false;  // ranks share a GPU
  c10::intrusive_ptr<c10d::Store> store;

  // The groups of all ranks, with a deadline of 20 s from now.
  [[nodiscard]] CpGroups connect(const std::string& prefix = "test/") const;
  // Events between ranks.
  void tell(const std::string& event) const;
  void await(const std::string& event) const;
};

// Makes all ranks share the first GPU from now on, or those of on_gpu_ranks share where they must.
void share_one_gpu(bool always);

// Forks `size` ranks and runs `body` in each. The expectations that fail there are printed there, and
// fail this test. A rank that takes longer than a minute is killed.
void on_gpu_ranks(int size, const std::function<void(const GpuRank&)>& body);

// Called by a rank that cannot go on and has shown what it was to show: ends it, and its peers, which may be waiting
// for it on their GPUs.
[[noreturn]] void end_all_ranks();

}  // namespace cp_pool
