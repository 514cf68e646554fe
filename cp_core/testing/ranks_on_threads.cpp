#include "cp_core/testing/ranks_on_threads.h"

#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <ATen/Parallel.h>

#include "cp_core/comm/local/local_hub.h"

namespace cp_pool {
namespace {

// Keeps the first exception and aborts the communicators of all ranks.
class FirstError {
 public:
  void keep(std::exception_ptr error, const std::vector<CpGroups>& groups) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    for (const CpGroups& of_rank : groups) {
      of_rank.cp->abort();
      if (of_rank.inner) of_rank.inner->abort();
      if (of_rank.outer) of_rank.outer->abort();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

void run_ranks(int size, const std::function<void(const CpGroups&, int rank)>& fn, std::chrono::milliseconds limit,
               const LocalOptions& options, bool one_at_a_time) {
  const std::vector<CpGroups> groups = make_local_groups(size, options);
  const auto deadline = Communicator::Clock::now() + limit;
  FirstError first_error;
  std::mutex turn;
  std::vector<std::jthread> ranks;
  ranks.reserve(groups.size());
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const CpGroups& own = groups[static_cast<std::size_t>(rank)];
      const LocalTurn own_turn(one_at_a_time ? &turn : nullptr);
      try {
        at::set_num_threads(1);
        for (const auto& communicator : {own.cp, own.inner, own.outer}) {
          if (communicator) communicator->set_deadline(deadline);
        }
        fn(own, rank);
      } catch (...) {
        first_error.keep(std::current_exception(), groups);
      }
    });
  }
  for (std::jthread& rank : ranks) rank.join();
  first_error.rethrow();
}

}  // namespace cp_pool
