// Which file a path leads to, whatever it is called.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <sys/types.h>

namespace cp_pool {

// Two paths with equal identities are one file: a hard link, a symbolic link or another spelling of the other.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;   // of the file; of the folder that exists, if the file does not
  std::string rest;  // from that folder to the file; empty if the file exists

  bool operator==(const FileIdentity&) const = default;
};

// Links are followed. nullopt: what is there is no regular file (a pipe, a device, a folder), or nothing can be there.
std::optional<FileIdentity> identify(const std::filesystem::path& path);

}  // namespace cp_pool
