// Files that reports are written to: one that reports every failed write, and one that is replaced atomically.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "driver/process/unique_fd.h"

namespace cp_pool {

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

// A file that is written as the run goes, by one run at a time. Owns its descriptor.
class OutputFile {
 public:
  // Creates the file, or locks one that exists: what it holds stays until the first write. Throws OutputError, which
  // names the process that has locked it.
  explicit OutputFile(const std::filesystem::path& path);

  // Hands the bytes to the kernel before it returns: they survive the death of this process. Throws OutputError, also
  // if the file has been removed meanwhile.
  void write(std::string_view text);

 private:
  void replace_content();

  std::string name_;
  UniqueFd fd_;
  bool regular_ = false;   // no pipe and no device
  bool has_name_ = false;  // no descriptor of a file that was removed before
  bool replaced_ = false;
};

// A file that is written once, at the end.
class AtomicFile {
 public:
  // Proves that the file can be written, and leaves what is there untouched. Throws OutputError.
  explicit AtomicFile(std::filesystem::path path);

  // The path holds `text` in full afterwards, or what it held before. A path that is no regular file (a pipe, a
  // device, a link to a descriptor like /dev/stdout) is written in place, and so is a file that cannot be replaced.
  // Other links stay. Throws OutputError.
  void commit(std::string_view text) const;

 private:
  std::filesystem::path path_;
  bool in_place_ = false;
};

}  // namespace cp_pool
