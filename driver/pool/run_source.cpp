#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <asio/post.hpp>

#include "driver/pool/runner.h"
#include "driver/run.h"

namespace cp_pool {

namespace {

// Gives the runner the cases of a source, each as soon as there is room for it.
class Supply {
 public:
  Supply(Runner& runner, CaseSource& source, EventSink& sink, int ranks)
      : runner_(runner), source_(source), sink_(sink), room_(ranks) {
    runner_.on_case_finished = [this](const CaseFinished& finished) {
      room_.give_back(running_.extract(finished.index).mapped()->payload->ranks());
      emit(source_.ended(finished));
      feed();
    };
    runner_.on_abandon = [this] {
      if (!std::exchange(abandoned_, true)) source_.abandoned();
      feed();
    };
    // Posted, so that the first case begins after run_started.
    asio::post(runner_.io(), [this] { feed(); });
  }
  Supply(const Supply&) = delete;
  Supply& operator=(const Supply&) = delete;
  ~Supply() = default;

 private:
  void emit(const std::vector<Event>& events) {
    for (const Event& event : events) sink_.on_event(event);
  }

  void feed() {
    if (stopped_) return;
    while (!abandoned_) {
      auto named = source_.next(room_);
      if (!named) break;
      auto kept = std::make_unique<Item>(*std::move(named));
      room_.take(kept->payload->ranks());
      const std::size_t index = runner_.add(*kept);
      running_.emplace(index, std::move(kept));
    }
    if (running_.empty() || runner_.failed()) stop();
  }

  void stop() {
    stopped_ = true;
    runner_.no_more_cases();
    // After a failure nothing is emitted, since it may be the sink that failed.
    if (!runner_.failed()) emit(source_.end());
  }

  Runner& runner_;
  CaseSource& source_;
  EventSink& sink_;
  Room room_;
  std::map<std::size_t, std::unique_ptr<Item>> running_;  // by index
  bool abandoned_ = false;
  bool stopped_ = false;
};

}  // namespace

RunResult run_source(CaseSource& source, const RunConfig& config, const RunStarted& header, EventSink& sink) {
  // No limit on slots, so that every pool may stay: the room limits how many ranks work. So pools on GPUs do not get
  // GPUs of their own.
  Runner runner(config, sink, std::nullopt);
  const Supply supply(runner, source, sink, config.device == "cpu" ? slot_count(config) : 1);
  return runner.run(header);
}

}  // namespace cp_pool
