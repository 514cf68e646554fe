// A file that appears under its name whole, or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace cp_pool {

// Written as NAME.PID.NUMBER.tmp in the same folder, and renamed once it is whole. Every member throws
// std::system_error with the cause, without a path: callers know what the file is to their user.
class WholeFile {
 public:
  explicit WholeFile(std::filesystem::path path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();  // leaves nothing behind unless it was kept

  void write(std::string_view bytes);
  // Until the disk has it. A write that the file system put off (a full disk over NFS) fails here.
  void sync();
  // Replaces what stands under the name.
  void keep();

 private:
  std::filesystem::path path_;
  std::filesystem::path draft_;
  int fd_ = -1;
};

}  // namespace cp_pool
