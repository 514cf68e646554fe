// Passes one stream of events to several views. A view that cannot write any more is dropped and reported. The other
// views and the run go on, unless the reader of the last output is gone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/core/events.h"

namespace cp_pool {

class SinkList : public EventSink {
 public:
  // `on_error` is called once for each view that is dropped, with a line that says why.
  explicit SinkList(std::function<void(const std::string&)> on_error);

  // Adds a view that writes an output. It is not owned and must outlive this object. Views get events in the order in
  // which they were added.
  void add(EventSink& sink);
  // Adds a view that writes no output.
  void add_listener(EventSink& sink);
  // Says that the run has outputs beside its views, such as folders, which need no reader.
  void expect_other_outputs() { other_outputs_ = true; }

  // Both throw ReaderGone if a view was dropped because its reader is gone and no output is left: nobody would see the
  // rest of the run.
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
