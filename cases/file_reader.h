// Reading a file that the user names: a regular file, or a pipe, a FIFO or a terminal, which may have nothing to say
// yet.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace cp_pool {

// No matrix, no case and no line of an events file is as large as that. What is larger is refused before it fills the
// memory: /dev/zero, a disk image, a program that never ends.
inline constexpr std::size_t kMostInputBytes = std::size_t{256} << 20U;

class FileReader {
 public:
  // most: bytes, of the whole file for read_all and of a line for read_line. Throws std::system_error.
  explicit FileReader(const std::string& path, std::size_t most = kMostInputBytes);
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;
  ~FileReader();

  // Waits for data and reads some of it; gives the number of bytes, 0 at the end. One that has to wait for more than a
  // moment says so on stderr, once. Throws std::system_error.
  std::size_t read(std::span<char> into);

  // Everything up to the end. Throws std::system_error, and CaseError where that is too much.
  std::string read_all();

  // The next line, without its newline; false at the end. Throws std::system_error, and CaseError for a line that is
  // too long.
  bool read_line(std::string& line);
  [[nodiscard]] std::size_t line_number() const { return line_number_; }  // of the last line read, from 1
  [[nodiscard]] bool line_was_cut() const { return line_was_cut_; }       // the last line lacks its newline

 private:
  void wait_for_data();

  std::string path_;
  std::size_t most_;
  int fd_ = -1;
  bool may_wait_ = false;  // it is no regular file
  bool has_waited_ = false;
  std::string rest_;  // of what was read, behind the last line
  std::size_t rest_begin_ = 0;
  std::size_t line_number_ = 0;
  bool line_was_cut_ = false;
};

// "cp-pool: waiting for WHAT" on stderr.
void say_what_is_awaited(std::string_view what);

}  // namespace cp_pool
