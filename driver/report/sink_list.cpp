#include "driver/report/sink_list.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "driver/report/output_file.h"

namespace cp_pool {

SinkList::SinkList(std::function<void(const std::string&)> on_error) : on_error_{std::move(on_error)} {}

void SinkList::add(EventSink& sink) {
  views_.push_back({.sink = &sink, .writes = true});
}

void SinkList::add_listener(EventSink& sink) {
  views_.push_back({.sink = &sink, .writes = false});
}

void SinkList::on_event(const Event& event) {
  deliver([&](EventSink& sink) { sink.on_event(event); });
}

void SinkList::on_tick() {
  deliver([](EventSink& sink) { sink.on_tick(); });
}

void SinkList::deliver(const std::function<void(EventSink&)>& what) {
  const std::size_t before = views_.size();
  std::erase_if(views_, [&](const View& view) {
    try {
      what(*view.sink);
      return false;
    } catch (const std::exception& e) {
      failed_ = true;
      reader_gone_ |= dynamic_cast<const ReaderGone*>(&e) != nullptr;
      on_error_(e.what());
      return true;
    }
  });
  if (views_.size() == before || !reader_gone_ || other_outputs_) return;
  if (std::ranges::none_of(views_, &View::writes)) throw ReaderGone("nobody reads the outputs of the run");
}

}  // namespace cp_pool
