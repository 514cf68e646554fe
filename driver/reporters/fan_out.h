// One stream, several views. A view that cannot write any more is dropped and named; the others and the run go on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/events.h"

namespace cp_pool {

class FanOut : public EventSink {
 public:
  // on_error is called once for each view that is dropped, with one line that says why.
  explicit FanOut(std::function<void(const std::string&)> on_error);

  void add(EventSink& sink);  // not owned; must outlive this. Views get events in the order in which they were added

  void on_event(const Event& event) override;
  void on_tick() override;

  [[nodiscard]] bool failed() const { return failed_; }  // whether a view was dropped

 private:
  void deliver(const std::function<void(EventSink&)>& what);

  std::vector<EventSink*> sinks_;
  std::function<void(const std::string&)> on_error_;
  bool failed_ = false;
};

}  // namespace cp_pool
