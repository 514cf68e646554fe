// One stream, several views. A view that cannot write any more is dropped and named; the others and the run go on,
// unless the reader of the last one is gone.
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

  // A view that writes an output. Not owned; must outlive this. Views get events in the order in which they were added.
  void add(EventSink& sink);
  // One that writes none.
  void add_listener(EventSink& sink);
  // The run has outputs beside its views, which are not for a reader that may go away.
  void expect_other_outputs() { other_outputs_ = true; }

  // Both throw ReaderGone when a view was dropped for that and no output is left: nobody would see what comes.
  void on_event(const Event& event) override;
  void on_tick() override;

  [[nodiscard]] bool failed() const { return failed_; }  // whether a view was dropped

 private:
  struct View {
    EventSink* sink;
    bool writes;
  };

  void deliver(const std::function<void(EventSink&)>& what);

  std::vector<View> views_;
  std::function<void(const std::string&)> on_error_;
  bool other_outputs_ = false;
  bool failed_ = false;
  bool reader_gone_ = false;
};

}  // namespace cp_pool
