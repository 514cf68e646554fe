#include "python/extension/own_sockets.h"

#include <charconv>
#include <dirent.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <vector>

namespace cp_pool {
namespace {

struct OpenSocket {
  int fd;
  ino_t inode;
};

std::vector<OpenSocket> open_sockets() {
  std::vector<OpenSocket> out;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return out;
  while (const dirent* const entry = readdir(folder)) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc{}) continue;
    struct stat facts{};
    if (fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode)) out.push_back({.fd = fd, .inode = facts.st_ino});
  }
  closedir(folder);
  return out;
}

int option_of(int fd, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool is_network_connection(int fd) {
  const int domain = option_of(fd, SO_DOMAIN);
  return (domain == AF_INET || domain == AF_INET6) && option_of(fd, SO_TYPE) == SOCK_STREAM &&
         option_of(fd, SO_ACCEPTCONN) == 0;
}

}  // namespace

void OwnSockets::remember_own() {
  const std::lock_guard lock(mutex_);
  own_.clear();
  for (const OpenSocket& socket : open_sockets()) {
    if (!others_.contains(socket.inode)) own_.insert(socket.inode);
  }
}

void OwnSockets::remember_others() {
  const std::lock_guard lock(mutex_);
  for (const OpenSocket& socket : open_sockets()) {
    if (!own_.contains(socket.inode)) others_.insert(socket.inode);
  }
}

void OwnSockets::shut_others() {
  remember_others();
  const std::lock_guard lock(mutex_);
  for (const OpenSocket& socket : open_sockets()) {
    if (others_.contains(socket.inode) && is_network_connection(socket.fd)) shutdown(socket.fd, SHUT_RDWR);
  }
}

}  // namespace cp_pool
