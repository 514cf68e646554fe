// How the fake ranks talk to each other: a TCP connection from every other rank to rank 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/protocol/environment.h"

namespace cp_pool::fake {

// Reads a descriptor line by line.
class LineReader {
 public:
  explicit LineReader(int fd = -1) : fd_(fd) {}
  // The next line, without its newline; nullopt at the end of file.
  std::optional<std::string> next();
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
  std::string buffer_;
};

// Rank 0's side of the connections.
class Ranks {
 public:
  // Waits until all other ranks have connected.
  explicit Ranks(const protocol::RankEnvironment& environment);
  // Tells a rank what to do and waits until it has done it; hangs if the rank never answers.
  void tell(int rank, const std::string& what);
  [[nodiscard]] const std::vector<int>& pids() const { return pids_; }  // of ranks 1 and up

 private:
  std::vector<LineReader> sockets_;  // of ranks 1 and up
  std::vector<int> pids_;
};

// What every other rank does: it obeys the orders of rank 0, and ends when rank 0 is gone.
[[noreturn]] void serve_rank_zero(const protocol::RankEnvironment& environment);

}  // namespace cp_pool::fake
