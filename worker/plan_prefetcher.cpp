#include "worker/plan_prefetcher.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

namespace cp_pool {

struct PlanPrefetcher::State {
  // The mutex guards all other members. `pieces` are those of the newest request.
  std::mutex mutex;
  std::condition_variable filled;
  std::condition_variable idle;
  std::deque<Piece> pieces;
  std::int64_t request = 0;
  int at_work = 0;
  int threads = 0;  // threads that have not ended
  bool stopped = false;

  void serve() {
    std::unique_lock lock(mutex);
    for (;;) {
      filled.wait(lock, [this] { return stopped || !pieces.empty(); });
      if (stopped) break;
      {
        const Piece piece = std::move(pieces.front());
        pieces.pop_front();
        ++at_work;
        lock.unlock();
        try {
          piece();
        } catch (...) {  // NOLINT(bugprone-empty-catch): the case meets it again, and reports it as its own
        }
      }  // the piece's captures are destroyed without the lock
      lock.lock();
      --at_work;
      idle.notify_all();
    }
    --threads;
    idle.notify_all();
  }

  // Adds the pieces of a request, unless a newer request has come meanwhile.
  void add(std::int64_t of_request, Pieces more) {
    const std::lock_guard lock(mutex);
    if (stopped || request != of_request) return;
    for (Piece& piece : more) pieces.push_back(std::move(piece));
    filled.notify_all();
  }
};

PlanPrefetcher::PlanPrefetcher(int threads, std::chrono::milliseconds patience)
    : patience_(patience), state_(std::make_shared<State>()) {
  state_->threads = threads;
  for (int i = 0; i < threads; ++i) std::thread([state = state_] { state->serve(); }).detach();
}

PlanPrefetcher::~PlanPrefetcher() {
  std::unique_lock lock(state_->mutex);
  state_->stopped = true;
  state_->pieces.clear();
  state_->filled.notify_all();
  state_->idle.wait_for(lock, patience_, [this] { return state_->threads == 0; });
}

void PlanPrefetcher::prepare(std::function<Pieces()> list) {
  const std::lock_guard lock(state_->mutex);
  if (state_->threads == 0) return;
  state_->pieces.clear();
  // The lambda holds a plain pointer: the threads keep the state alive, and a shared pointer here would be a cycle.
  state_->pieces.emplace_back(
      [state = state_.get(), request = ++state_->request, list = std::move(list)] { state->add(request, list()); });
  state_->filled.notify_all();
}

bool PlanPrefetcher::settle(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  state_->pieces.clear();
  ++state_->request;
  return state_->idle.wait_for(lock, limit, [this] { return state_->at_work == 0; });
}

}  // namespace cp_pool
