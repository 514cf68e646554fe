// A second stream beside the current one (the first), for work that does not depend on the first stream's. On a CPU
// there are no streams: run() executes its body at once on the calling thread, and waits do nothing.
//
// Memory: the caching allocator returns a freed block to the stream that allocated it. A tensor of the first stream
// that the second one uses must be kept until join(), so that any work that reuses its memory is enqueued after both.
// Tensors made inside run() are used by the second stream alone, unless they are results. The same holds for workspaces
// of libraries, which come from the allocator at each call or, in cuBLAS, are kept for each stream. These tensors
// therefore need no record_stream, which would keep their memory from being reused until an event is queried or a
// capture ends.
//
// A result of run() that the first stream reads needs hand_over(), which calls record_stream. The memory of such a
// result belongs to the second stream, whose later work need not wait for the reads of the first stream, since the next
// SecondStream may have another first stream. When the result is freed, its memory is held back until the first stream
// has read it, and in a capture until the capture ends. Only the results of a step pay this price.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace cp_pool {

class SecondStream {
 public:
  // The first stream is the device's current stream. The second stream starts after all work that the first one has so
  // far.
  explicit SecondStream(const at::Device& device);
  SecondStream(const SecondStream&) = delete;
  SecondStream& operator=(const SecondStream&) = delete;
  // Calls join() if the caller has not, as when an exception passes through.
  ~SecondStream();

  // Runs body with the second stream as the current one.
  void run(const std::function<void()>& body);

  // Marks the end of all work that the current stream has so far.
  void mark();
  // Makes the current stream wait until the stream that was marked has reached its mark.
  void wait_for_mark();
  // Makes the current stream wait for all work that the other one has so far.
  void wait_for_other();

  // Makes the first stream wait for all work of the second.
  void join();

  // Lets the first stream read a tensor made inside run(). The first stream must wait for the tensor before it reads
  // it.
  void hand_over(const at::Tensor& tensor) const;

 private:
  struct Streams {
    c10::Stream first;
    c10::Stream second;
    c10::Event mark;

    [[nodiscard]] const c10::Stream& current() const;
    [[nodiscard]] const c10::Stream& other() const;
  };

  std::optional<Streams> streams_;  // empty on a CPU
  bool joined_ = false;
};

// Alternates between the two streams, beginning with the first. The preparation of a call then overlaps the previous
// call, and a call starts on the multiprocessors that the previous call no longer uses.
class StreamTurns {
 public:
  // second: if null, everything runs on the current stream.
  explicit StreamTurns(SecondStream* second) : second_(second) {}

  void next(const std::function<void()>& body);
  // Runs body on the stream of the last next().
  void again(const std::function<void()>& body) const;

 private:
  SecondStream* second_;
  bool on_second_ = true;
};

}  // namespace cp_pool
