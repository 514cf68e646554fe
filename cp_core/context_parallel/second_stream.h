// A stream beside the current one, for work that does not depend on the current stream's. On the CPU there is none:
// run() runs at once, on the calling thread, and waits are nothing.
//
// Memory: the caching allocator gives a block back to the stream it was allocated on. A tensor of the first stream that
// the second touches must be kept until join(); after that, whatever reuses its memory is enqueued behind both. Tensors
// made inside run() stay there, but for results: only the second stream uses them; so it is with the libraries'
// workspaces, which come from the allocator at each call, or (cuBLAS) are kept by stream. So these tensors need no
// record_stream, which would keep memory from being reused during a capture, and until an event is queried otherwise.
//
// A result of run() that the first stream reads, having waited for it, is handed over. Its block belongs to the second
// stream, where what comes next need not wait for those reads: the next SecondStream may be beside another first
// stream. So hand_over() calls record_stream: freed, the block is kept back until the first stream is through with it,
// and in a capture until that ends, as communicators do it for theirs. That is the price of a step's results, not of
// all that it computes with.
#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace cp_pool {

class SecondStream {
 public:
  // The first stream is the device's current one; the second begins when the first has done what it has been given so
  // far.
  explicit SecondStream(const at::Device& device);
  SecondStream(const SecondStream&) = delete;
  SecondStream& operator=(const SecondStream&) = delete;
  // Joins, if join() has not been called: an exception passes through.
  ~SecondStream();

  // With the second stream as the current one.
  void run(const std::function<void()>& body);

  // A place in the work of the current one of the two: after what it has been given so far.
  void mark();
  // The current one goes on when the one that was marked has come to the mark.
  void wait_for_mark();
  // The current one goes on when the other has done what it has been given so far.
  void wait_for_other();

  // The first stream goes on when the second has done what it has been given.
  void join();

  // A tensor made inside run() is also the first stream's to read, once that has waited for it.
  void hand_over(const at::Tensor& tensor) const;

 private:
  struct Streams {
    c10::Stream first;
    c10::Stream second;
    c10::Event mark;

    [[nodiscard]] const c10::Stream& current() const;
    [[nodiscard]] const c10::Stream& other() const;
  };

  std::optional<Streams> streams_;  // of a GPU
  bool joined_ = false;
};

// The two streams by turns, the first one first: what prepares a call runs beside the call before it, which has nearly
// all multiprocessors, and a call begins where the one before it leaves some idle.
class StreamTurns {
 public:
  // second: null if all turns are the first stream's.
  explicit StreamTurns(SecondStream* second) : second_(second) {}

  void next(const std::function<void()>& body);
  // On the stream of the last turn.
  void again(const std::function<void()>& body) const;

 private:
  SecondStream* second_;
  bool on_second_ = true;
};

}  // namespace cp_pool
