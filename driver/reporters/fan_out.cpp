#include "driver/reporters/fan_out.h"

#include <exception>
#include <utility>

namespace cp_pool {

FanOut::FanOut(std::function<void(const std::string&)> on_error) : on_error_{std::move(on_error)} {}

void FanOut::add(EventSink& sink) {
  sinks_.push_back(&sink);
}

void FanOut::on_event(const Event& event) {
  deliver([&](EventSink& sink) { sink.on_event(event); });
}

void FanOut::on_tick() {
  deliver([](EventSink& sink) { sink.on_tick(); });
}

void FanOut::deliver(const std::function<void(EventSink&)>& what) {
  std::erase_if(sinks_, [&](EventSink* sink) {
    try {
      what(*sink);
      return false;
    } catch (const std::exception& e) {
      failed_ = true;
      on_error_(e.what());
      return true;
    }
  });
}

}  // namespace cp_pool
