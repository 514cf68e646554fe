// Keeps the last lines that one rank wrote to stderr. Fences, which the rank writes after each case, separate the lines
// of different cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "driver/core/events.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool {

inline constexpr std::size_t kTailLines = 200;
inline constexpr std::size_t kTailBytes = 4096;

class StderrBuffer {
 public:
  // writers: number of ranks that write to the stream; each of them ends a case with a fence of its own.
  explicit StderrBuffer(int rank, int writers = 1) : rank_(rank), writers_(writers) {}

  void feed(std::string_view bytes);
  // At end of file. Lines after the fence then belong to the case, too, since they say why the rank has ended.
  void close();
  [[nodiscard]] bool closed() const { return closed_; }

  // Starts a case: later lines belong to it.
  void begin_case(std::int64_t seq);

  // Called when the rank is asked where it stands or why the case failed: lines after the fence then belong to the
  // case, too, until the next case begins. That includes lines after the fence that have already been read.
  void reopen();

  // Whether all lines of the case have been read: its fence was read, or the stream has ended.
  [[nodiscard]] bool complete() const { return fence_seen_ || closed_; }

  // Returns the lines of the current case, or those of the start before the first case. A last line without a newline
  // counts as a line.
  StderrTail tail();

  // Returns the last non-empty line of all, cleaned, that does not belong to a stack; empty if there is none.
  std::string last_line();

 private:
  void take_line(std::string_view line);
  void take_partial_line() {
    if (const auto line = framer_.rest()) take_line(line->text);
  }
  void keep(std::string line);

  int rank_;
  int writers_;
  int fences_ = 0;  // fences of the current case
  protocol::LineFramer framer_{protocol::LineFramer::Stream::log};
  std::deque<std::string> lines_;  // lines of the current case: at most kTailLines, of at most kTailBytes each
  // Lines after the fence, with the same limits; they belong to no case unless reopened_.
  std::deque<std::string> later_lines_;
  std::string last_line_;
  std::int64_t seq_ = 0;  // seq of the current case
  bool fence_seen_ = false;
  bool reopened_ = false;
  bool foreign_ = false;  // lines_ may begin with lines of an earlier case, whose fence was not read
  bool closed_ = false;
};

}  // namespace cp_pool
