// Keeps the last lines that one rank wrote to stderr. The fences that the rank writes after each case separate the
// lines of cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "driver/events.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool {

inline constexpr std::size_t kTailLines = 200;
inline constexpr std::size_t kTailBytes = 4096;

class StderrRing {
 public:
  // writers: how many ranks write to it, of which each ends a case with a fence of its own.
  explicit StderrRing(int rank, int writers = 1) : rank_(rank), writers_(writers) {}

  void feed(std::string_view bytes);
  void close();  // end of file: nothing will follow
  [[nodiscard]] bool closed() const { return closed_; }

  // Starts a case: later lines belong to it.
  void begin_case(std::int64_t seq);

  // What comes after the fence belongs to the case, too, until the next one begins: the rank is asked where it stands,
  // or why the case failed. That includes what it has already written.
  void reopen();

  // All lines of the case are in: its fence was read, or the stream has ended.
  [[nodiscard]] bool complete() const { return fence_seen_ || closed_; }

  // The lines of the current case, or of the start before the first case. A line without its newline counts as a line.
  StderrTail tail();

  // The last line written at all that is none of a stack and not empty, cleaned; empty if there is none.
  std::string last_line();

 private:
  void take_line(std::string_view line);
  void take_fence(std::int64_t seq);
  void take_partial_line();
  void keep(std::string line);

  int rank_;
  int writers_;
  int fences_ = 0;  // of the current case
  protocol::LineFramer framer_{protocol::LineFramer::Stream::log};
  std::deque<std::string> lines_;        // of the current case, kTailLines at most, each kTailBytes at most
  std::deque<std::string> later_lines_;  // written after the fence, likewise; they belong to no case unless reopened_
  std::string last_line_;
  std::int64_t seq_ = 0;  // of the current case
  bool fence_seen_ = false;
  bool reopened_ = false;
  bool foreign_ = false;  // lines_ may start with some of an earlier case, whose fence has not come
  bool closed_ = false;
};

}  // namespace cp_pool
