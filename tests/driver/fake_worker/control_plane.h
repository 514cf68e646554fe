// How the fake ranks talk to each other: a TCP connection from every other rank to rank 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/protocol/environment.h"

namespace cp_pool::fake {

// Lines of a descriptor.
class LineReader {
 public:
  explicit LineReader(int fd = -1) : fd_(fd) {}
  // The next one, without its newline; nullopt at the end.
  std::optional<std::string> next();
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
  std::string buffer_;
};

// Rank 0's side.
class Ranks {
 public:
  // Waits until all have come.
  explicit Ranks(const protocol::RankEnvironment& environment);
  // Tells a rank what to do and waits until it has; hangs if it never has.
  void tell(int rank, const std::string& what);
  [[nodiscard]] const std::vector<int>& pids() const { return pids_; }  // of ranks 1..

 private:
  std::vector<LineReader> sockets_;  // of ranks 1..
  std::vector<int> pids_;
};

// The other ranks' life: do what rank 0 says, end when it is gone.
[[noreturn]] void serve_rank_zero(const protocol::RankEnvironment& environment);

}  // namespace cp_pool::fake
