#include "cp_core/context_parallel/second_stream.h"

#include <map>
#include <mutex>
#include <utility>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

// Returns the second stream for a first one. A device always has the same two candidates, since libraries keep
// workspaces, and the allocator keeps memory, for each stream they see. There are two in case one of them is the first
// stream.
c10::Stream stream_beside(const c10::Stream& first) {
  static std::mutex mutex;
  static std::map<c10::DeviceIndex, std::pair<c10::Stream, c10::Stream>> known;
  const std::lock_guard lock(mutex);
  auto streams = known.find(first.device_index());
  if (streams == known.end()) {
    const c10::impl::VirtualGuardImpl device(first.device_type());
    const auto take = [&] { return device.getStreamFromGlobalPool(first.device()); };
    streams = known.emplace(first.device_index(), std::pair(take(), take())).first;
  }
  const auto& [one, other] = streams->second;
  return one == first ? other : one;
}

// Makes `later` wait for all work that `earlier` has so far.
void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event reached(earlier.device_type());
  reached.record(CP_MUTATE(streams_swapped, earlier, later));
  reached.block(CP_MUTATE(streams_swapped, later, earlier));
}

}  // namespace

const c10::Stream& SecondStream::Streams::current() const {
  return c10::impl::VirtualGuardImpl(first.device_type()).getStream(first.device()) == second ? second : first;
}

const c10::Stream& SecondStream::Streams::other() const {
  return current() == second ? first : second;
}

SecondStream::SecondStream(const at::Device& device) {
  if (!device.is_cuda()) return;
  const c10::Stream first = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  streams_.emplace(Streams{.first = first, .second = stream_beside(first), .mark = c10::Event(device.type())});
  if (CP_MUTATE(second_stream_wait_skipped, true, false)) order(streams_->first, streams_->second);
}

SecondStream::~SecondStream() {
  try {
    join();
  } catch (const c10::Error& error) {
    // Streams cannot be joined if the device has failed. The next call of the device reports that, too.
    TORCH_WARN("the second stream could not be joined: ", error.what_without_backtrace());
  }
}

void SecondStream::run(const std::function<void()>& body) {
  if (!streams_) return body();
  const c10::StreamGuard guard(streams_->second);
  body();
}

void SecondStream::mark() {
  if (streams_ && CP_MUTATE(mark_not_recorded, true, false)) streams_->mark.record(streams_->current());
}

void SecondStream::wait_for_mark() {
  if (streams_ && CP_MUTATE(mark_wait_skipped, true, false)) streams_->mark.block(streams_->current());
}

void SecondStream::wait_for_other() {
  if (streams_ && CP_MUTATE(other_stream_wait_skipped, true, false)) order(streams_->other(), streams_->current());
}

void SecondStream::join() {
  if (!streams_ || std::exchange(joined_, true)) return;
  if (CP_MUTATE(join_wait_skipped, true, false)) order(streams_->second, streams_->first);
}

void SecondStream::hand_over(const at::Tensor& tensor) const {
  if (streams_) tensor.record_stream(streams_->first);
}

void StreamTurns::next(const std::function<void()>& body) {
  on_second_ = !on_second_;
  again(body);
}

void StreamTurns::again(const std::function<void()>& body) const {
  if (second_ != nullptr && on_second_) {
    second_->run(body);
  } else {
    body();
  }
}

}  // namespace cp_pool
