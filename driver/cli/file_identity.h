// Tells whether two paths lead to the same file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>

namespace cp_pool {

// Two paths with equal identities are one file: one is a hard link, a symbolic link or another spelling of the other.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;   // of the file; if there is none, of the nearest existing folder above it
  std::string rest;  // from that folder to the file; empty if the file exists

  bool operator==(const FileIdentity&) const = default;
};

// Follows links. Returns nullopt if the path leads to something else than a regular file (a pipe, a device, a folder),
// or if no file can be made there.
std::optional<FileIdentity> identify(const std::filesystem::path& path);

}  // namespace cp_pool
