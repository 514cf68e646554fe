// Threads that prepare for the next case while one runs. All that is asked of them is a hint: it may be done in part,
// or not at all, and what goes wrong is left for the case itself to meet.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace cp_pool {

class Preparer {
 public:
  using Piece = std::function<void()>;
  using Pieces = std::vector<Piece>;

  // How long a destructor waits for pieces at work. Those that take longer are left to the end of the process, which
  // must not run destructors of static objects under them.
  static constexpr std::chrono::milliseconds kPatience{300};

  explicit Preparer(int threads, std::chrono::milliseconds patience = kPatience);  // 0 threads: nothing is ever done
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;
  ~Preparer();

  // What is left of the last request is dropped for this one. `list` gives the pieces; it, too, is called on a thread
  // of the preparer. From any thread; never waits for a piece.
  void prepare(std::function<Pieces()> list);
  // Drops what is left, and waits until nothing is at work; false if that takes longer than `limit`.
  bool settle(std::chrono::milliseconds limit);

 private:
  struct State;  // shared with the threads: it outlives those that are left

  std::chrono::milliseconds patience_;
  std::shared_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace cp_pool
