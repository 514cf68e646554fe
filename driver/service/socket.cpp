#include "driver/service/socket.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace cp_pool::service {
namespace {

constexpr std::size_t kLongestName = 64;
constexpr mode_t kOwnerOnlyFolder = 0700;
constexpr mode_t kOwnerOnlyFile = 0600;
constexpr int kFirstSystemdDescriptor = 3;
constexpr const char* kLockEnding = ".lock";
constexpr int kMostTries = 50;
constexpr std::chrono::milliseconds kBetweenTries{2};

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& why) {
  throw SocketError(fmt::format("{}: {}", path.string(), why));
}

sockaddr_un address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path) {
    fail(path, fmt::format("the path of a socket has at most {} bytes, this one {}", sizeof address.sun_path - 1,
                           text.size()));
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

UniqueFd make_socket(const std::filesystem::path& path) {
  UniqueFd out{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!out) fail(path, std::strerror(errno));
  return out;
}

// Creates the folder, or checks it: other users must not be able to replace the socket.
void make_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), kOwnerOnlyFolder) < 0 && errno != EEXIST) fail(folder, std::strerror(errno));
  struct stat status{};
  if (::lstat(folder.c_str(), &status) < 0) fail(folder, std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) fail(folder, "it is no folder");
  if (status.st_uid != ::geteuid()) fail(folder, fmt::format("it belongs to user {}", status.st_uid));
  if ((status.st_mode & 07777U) != kOwnerOnlyFolder && ::chmod(folder.c_str(), kOwnerOnlyFolder) < 0) {
    fail(folder, fmt::format("others may enter it, and its mode cannot be changed: {}", std::strerror(errno)));
  }
}

std::filesystem::path lock_file(std::filesystem::path socket) {
  return socket += kLockEnding;
}

// Whether the file still has its name. Its last holder may have removed it before releasing the lock; then the lock of
// another file holds the name.
bool is_still_there(const std::filesystem::path& file, int fd) {
  struct stat named{};
  struct stat opened{};
  return ::stat(file.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 && named.st_ino == opened.st_ino &&
         named.st_dev == opened.st_dev;
}

// Locks the file; empty if somebody else holds the lock.
UniqueFd try_lock(const std::filesystem::path& file, int flags) {
  UniqueFd out{::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, kOwnerOnlyFile)};
  if (!out) fail(file, std::strerror(errno));
  if (::flock(out.get(), LOCK_EX | LOCK_NB) == 0) return is_still_there(file, out.get()) ? std::move(out) : UniqueFd{};
  if (errno != EWOULDBLOCK) fail(file, std::strerror(errno));
  return {};
}

// Locks the name until the descriptor is closed. The holder may remove a socket that was left behind.
UniqueFd lock_name(const std::filesystem::path& socket) {
  const std::filesystem::path file = lock_file(socket);
  for (int tries = 0;; ++tries) {
    if (UniqueFd out = try_lock(file, O_CREAT)) {
      const std::string pid = fmt::format("{}\n", ::getpid());
      if (::ftruncate(out.get(), 0) < 0 || ::pwrite(out.get(), pid.data(), pid.size(), 0) < 0) {
        fail(file, std::strerror(errno));
      }
      return out;
    }
    // The lock file of a dead service may be locked for a moment by a process that removes it.
    pid_t pid = 0;
    std::ifstream(file) >> pid;
    const bool lives = pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
    if (lives || tries == kMostTries) {
      fail(socket, fmt::format("a service of this name is there already: process {}",
                               pid > 0 ? std::to_string(pid) : "unknown"));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// Removes the sockets and lock files of services that were killed. Such a lock file is not locked, because the kernel
// releases the locks of a dead process.
void remove_leftovers(const std::filesystem::path& folder) {
  std::error_code none;  // on an error nothing can be removed
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator{folder, none}) {
    if (entry.path().extension() == kLockEnding) files.push_back(entry.path());
  }
  for (const std::filesystem::path& file : files) {
    std::filesystem::path socket = file;
    socket.replace_extension();
    try {
      const UniqueFd lock = try_lock(file, 0);
      if (!lock) continue;
      // systemd, which takes no lock, may listen on the socket by now.
      if (!connect_to(socket)) ::unlink(socket.c_str());
      ::unlink(file.c_str());
    } catch (const SocketError&) {  // the file belongs to somebody else, or is gone by now
    }
  }
}

}  // namespace

std::string wrong_with_name(const std::string& name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (name.empty() || name.size() > kLongestName) {
    return fmt::format("the name of a service has 1 to {} characters", kLongestName);
  }
  if (name.starts_with('.') || name.find_first_not_of(kAllowed) != std::string::npos) {
    return fmt::format("'{}' is no name of a service: letters, digits, - _ and . make one", name);
  }
  return "";
}

std::filesystem::path socket_path(const std::string& name) {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool usable = runtime != nullptr && *runtime == '/';  // the XDG specification says to ignore a relative path
  const std::filesystem::path folder = usable ? std::filesystem::path(runtime) / "cp-pool"
                                              : std::filesystem::path(fmt::format("/tmp/cp-pool-{}", ::geteuid()));
  return folder / (name + ".sock");
}

ListeningService::ListeningService(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  make_folder(path.parent_path());
  remove_leftovers(path.parent_path());
  lock_ = lock_name(path);
  // A service of a version without the lock may still be listening.
  if (const UniqueFd living = connect_to(path)) {
    const auto peer = peer_of(living.get());
    fail(path, fmt::format("a service of this name is there already: process {}", peer ? peer->pid : 0));
  }
  if (::unlink(path.c_str()) < 0 && errno != ENOENT) fail(path, std::strerror(errno));
  fd_ = make_socket(path);
  const mode_t before = ::umask(0777U & ~kOwnerOnlyFile);
  const int bound = ::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int error = errno;
  ::umask(before);
  if (bound < 0) fail(path, std::strerror(error));
  path_ = path;
  if (::listen(fd_.get(), SOMAXCONN) < 0) fail(path, std::strerror(errno));
}

ListeningService::~ListeningService() {
  if (path_.empty()) return;
  ::unlink(path_.c_str());
  ::unlink(lock_file(path_).c_str());
}

std::optional<UniqueFd> socket_of_systemd() {
  const char* const pid = std::getenv("LISTEN_PID");
  const char* const count = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count == nullptr || std::to_string(::getpid()) != pid) return std::nullopt;
  // Ranks must not inherit these variables.
  const std::string number = count;
  for (const char* const name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  if (number != "1") throw SocketError(fmt::format("LISTEN_FDS is {}: a service has one socket", number));
  int listens = 0;
  socklen_t size = sizeof listens;
  sockaddr_un address{};
  socklen_t address_size = sizeof address;
  const bool is_unix =
      ::getsockname(kFirstSystemdDescriptor, reinterpret_cast<sockaddr*>(&address), &address_size) == 0 &&
      address.sun_family == AF_UNIX;
  if (!is_unix || ::getsockopt(kFirstSystemdDescriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0 ||
      listens == 0) {
    throw SocketError("descriptor 3 (LISTEN_FDS) is no Unix socket that listens");
  }
  ::fcntl(kFirstSystemdDescriptor, F_SETFD, FD_CLOEXEC);
  return UniqueFd{kFirstSystemdDescriptor};
}

std::optional<ucred> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0) return std::nullopt;
  return credentials;
}

UniqueFd connect_to(const std::filesystem::path& path) {
  const sockaddr_un address = address_of(path);
  UniqueFd out = make_socket(path);
  if (::connect(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    // ENOENT, ENOTDIR: no such socket; ECONNREFUSED: nobody listens on it.
    if (errno == ENOENT || errno == ENOTDIR || errno == ECONNREFUSED) return {};
    fail(path, std::strerror(errno));
  }
  const auto peer = peer_of(out.get());
  if (peer && peer->uid != ::geteuid()) {
    fail(path, fmt::format("the service is that of user {}, process {}", peer->uid, peer->pid));
  }
  return out;
}

}  // namespace cp_pool::service
