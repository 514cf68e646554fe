// Reads a file that the user names: a regular file, or a pipe, a FIFO or a terminal, which may have no data yet.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "cases/unique_fd.h"

namespace cp_pool {

// The most bytes of a file or line. No matrix, case or line of an events file is as large; larger input (/dev/zero, a
// disk image, the output of a program that never ends) is refused before it fills the memory.
inline constexpr std::size_t kMostInputBytes = std::size_t{256} << 20U;

class FileReader {
 public:
  // most: the largest size in bytes of the whole file for read_all, and of a line for read_line. Throws
  // std::system_error.
  explicit FileReader(const std::string& path, std::size_t most = kMostInputBytes);

  // Waits for data, reads some of it and returns the number of bytes; 0 at the end of the file. A read that waits for
  // more than a moment says so on stderr, once per reader. Throws std::system_error.
  std::size_t read(std::span<char> into);

  // Returns everything up to the end of the file. Throws std::system_error, and CaseError if it is more than `most`.
  std::string read_all();

  // Reads the next line, without its newline; returns false at the end of the file. Throws std::system_error, and
  // CaseError for a line that is longer than `most`.
  bool read_line(std::string& line);
  [[nodiscard]] std::size_t line_number() const { return line_number_; }  // number of the last line read, from 1
  [[nodiscard]] bool line_was_cut() const { return line_was_cut_; }       // the last line lacks its newline

 private:
  void wait_for_data();

  std::string path_;
  std::size_t most_;
  UniqueFd fd_;
  bool may_wait_ = false;  // the file is a pipe, FIFO, terminal or other device
  bool has_waited_ = false;
  std::string rest_;  // bytes read that have not been returned, from rest_begin_
  std::size_t rest_begin_ = 0;
  std::size_t line_number_ = 0;
  bool line_was_cut_ = false;
};

// Writes "cp-pool: waiting for WHAT" to stderr.
void print_awaited_input(std::string_view what);

}  // namespace cp_pool
