// Threads that prepare for the next case while one runs. A request is a hint: it may be carried out in part or not at
// all. Errors are ignored, because the case itself will meet them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace cp_pool {

class PlanPrefetcher {
 public:
  using Piece = std::function<void()>;
  using Pieces = std::vector<Piece>;

  // How long the destructor waits for pieces in progress. Pieces that take longer run until the process ends, which
  // must therefore not run destructors of static objects.
  static constexpr std::chrono::milliseconds kPatience{300};

  explicit PlanPrefetcher(int threads, std::chrono::milliseconds patience = kPatience);  // 0 threads prepare nothing
  ~PlanPrefetcher();

  // Replaces the pending pieces of the last request. `list` returns the new pieces; it is called on a thread of the
  // prefetcher. Callable from any thread; never waits for a piece.
  void prepare(std::function<Pieces()> list);
  // Drops the pending pieces and waits for those in progress; false if that takes longer than `limit`.
  bool settle(std::chrono::milliseconds limit);

 private:
  struct State;  // shared with the threads, which may outlive this object

  std::chrono::milliseconds patience_;
  std::shared_ptr<State> state_;
};

}  // namespace cp_pool
