// The files that a run writes, and the locks on them: JsonlSink is written during the run, AtomicFile is replaced at
// the end. The locks are fcntl record locks, so that no two runs write a file or a folder at a time: the kernel knows
// their holder and releases them when it dies, in whatever way. On a file system without locks nothing is locked.
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "cases/unique_fd.h"
#include "driver/core/events.h"

namespace cp_pool {

// How many symbolic links are followed from a path to its file: as many as the kernel follows.
inline constexpr int kMostLinks = 40;

// A report cannot be written; what() is one line that names the path and the cause.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The reader of a pipe or socket is gone.
struct ReaderGone : OutputError {
  using OutputError::OutputError;
};

// Throws OutputError or ReaderGone: the output `name` cannot be written for this errno.
[[noreturn]] void fail_to_write(const std::string& name, int error);

// Writes every byte or throws OutputError, which names the output as `name`.
void write_all(int fd, std::string_view text, const std::string& name);

// Throws ReaderGone if the reader of the pipe or socket is gone. Writes nothing.
void expect_reader(int fd, const std::string& name);

// The events file begins with this text, in this version and earlier ones.
inline constexpr std::string_view kEventsStart = R"({"v":1,"ts":")";

// The events file, which is written during the run, by one run at a time. Owns its descriptor.
class JsonlSink : public EventSink {
 public:
  // Creates the file, or locks an existing one, whose content stays until the first write. Throws OutputError, which
  // names the process that has locked it.
  explicit JsonlSink(const std::filesystem::path& path);

  // Writes each line before it returns, so the file ends with a whole line even after SIGKILL. Throws OutputError.
  void on_event(const Event& event) override;

  // Passes the bytes to the kernel before it returns, so they survive the death of this process. Throws OutputError,
  // also if the file has been removed meanwhile.
  void write(std::string_view text);

 private:
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

// Locks the file for this process, until the process closes any descriptor of that file. `fd` must be open for writing.
// Returns the holder if the lock is taken: "process 1234".
std::optional<std::string> lock_for_writing(int fd);

// Returns the holder of the lock of a file; nullopt if it is not locked or no regular file.
std::optional<std::string> writer_of(const std::filesystem::path& file);

// Locks a folder that one run writes into. The lock is held on a file in it, which is removed at the end.
class FolderLock {
 public:
  // `option` is the option whose folder it is, such as "--run-dir"; the folders of two options may be the same. Throws
  // OutputError if the lock file cannot be made, which shows that no file can be, or if another run holds the lock.
  FolderLock(const std::filesystem::path& folder, const std::string& option);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  UniqueFd fd_;
};

}  // namespace cp_pool
