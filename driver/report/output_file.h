// The files that reports are written to: OutputFile is written during the run, AtomicFile is replaced at the end.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "driver/os/unique_fd.h"

namespace cp_pool {

// How many symbolic links are followed from a path to its file: as many as the kernel follows.
inline constexpr int kMostLinks = 40;

// A report cannot be written; what() is one line that names the path and the cause.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The reader of a pipe or socket is gone.
class ReaderGone : public OutputError {
 public:
  using OutputError::OutputError;
};

// Writes every byte or throws OutputError, which names the output as `name`.
void write_all(int fd, std::string_view text, const std::string& name);

// Throws ReaderGone if the reader of the pipe or socket is gone. Writes nothing.
void expect_reader(int fd, const std::string& name);

// A file that is written during the run, by one run at a time. Owns its descriptor.
class OutputFile {
 public:
  // Creates the file, or locks an existing one, whose content stays until the first write. Throws OutputError, which
  // names the process that has locked it.
  explicit OutputFile(const std::filesystem::path& path);

  // Passes the bytes to the kernel before it returns, so they survive the death of this process. Throws OutputError,
  // also if the file has been removed meanwhile.
  void write(std::string_view text);

 private:
  void replace_content();

  std::string name_;
  UniqueFd fd_;
  bool regular_ = false;   // a regular file: no pipe and no device
  bool has_name_ = false;  // a regular file that has not been removed before
  bool replaced_ = false;
};

// A file that is written once, at the end.
class AtomicFile {
 public:
  // Checks that the file can be written, and leaves its content untouched. Throws OutputError.
  explicit AtomicFile(std::filesystem::path path);

  // Afterwards the path holds `text` in full, or its earlier content. A path that is no regular file (a pipe, a device,
  // a link to a descriptor like /dev/stdout) is written in place, and so is a file that cannot be replaced. Other links
  // stay. Throws OutputError.
  void commit(std::string_view text) const;

 private:
  std::filesystem::path path_;
  bool in_place_ = false;
};

}  // namespace cp_pool
