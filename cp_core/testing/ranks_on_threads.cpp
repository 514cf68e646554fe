#include "cp_core/testing/ranks_on_threads.h"

#include <exception>
#include <mutex>
#include <thread>

#include <ATen/Parallel.h>

namespace cp_pool {

void run_ranks(int size, const std::function<void(const CpGroups&, int rank)>& fn, std::chrono::milliseconds limit,
               LocalOptions options, bool one_at_a_time) {
  if (one_at_a_time) options.turn = std::make_shared<std::mutex>();
  const std::vector<CpGroups> groups = make_local_groups(size, options);
  const auto deadline = Communicator::Clock::now() + limit;
  std::mutex mutex;
  std::exception_ptr first_error;
  std::vector<std::jthread> ranks;
  ranks.reserve(groups.size());
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const CpGroups& own = groups[static_cast<std::size_t>(rank)];
      const auto own_turn = options.turn ? std::unique_lock(*options.turn) : std::unique_lock<std::mutex>();
      try {
        at::set_num_threads(1);
        for (const auto& communicator : {own.cp, own.inner, own.outer}) {
          if (communicator) communicator->set_deadline(deadline);
        }
        fn(own, rank);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (first_error) return;
        first_error = std::current_exception();
        groups.front().cp->abort();
      }
    });
  }
  for (std::jthread& rank : ranks) rank.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace cp_pool
