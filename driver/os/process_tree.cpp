#include "driver/os/process_tree.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <set>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/parse_number.h"
#include "cases/unique_fd.h"
#include "driver/os/spawn.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

namespace {

// Returns the contents of a file of /proc/PID. Empty if the file is gone or may not be read: then the process has ended
// or does not concern the driver.
std::string read_proc_file(pid_t pid, const char* name) {
  const UniqueFd fd{::open(fmt::format("/proc/{}/{}", pid, name).c_str(), O_RDONLY | O_CLOEXEC)};
  std::string out;
  if (!fd) return out;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t n = TEMP_FAILURE_RETRY(::read(fd.get(), buffer.data(), buffer.size()));
    if (n <= 0) return out;
    out.append(buffer.data(), static_cast<std::size_t>(n));
  }
}

// Parses /proc/PID/stat, see proc(5): "pid (comm) state ppid ...". Since comm may hold any characters, fields are
// counted from the last parenthesis.
std::optional<ProcessInfo> read_stat(pid_t pid) {
  const std::string text = read_proc_file(pid, "stat");
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  ProcessInfo out;
  out.pid = pid;
  long parent = 0;
  long long threads = 0;
  unsigned long long start_time = 0;
  const int fields = std::sscanf(text.c_str() + end_of_name + 1,
                                 " %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %lld %*d %llu",
                                 &out.state, &parent, &threads, &start_time);
  if (fields != 4) return std::nullopt;
  out.parent = static_cast<pid_t>(parent);
  out.threads = threads;
  out.start_time = start_time;
  return out;
}

std::multimap<pid_t, ProcessInfo> processes_by_parent() {
  struct CloseDir {
    void operator()(DIR* dir) const { ::closedir(dir); }
  };
  std::multimap<pid_t, ProcessInfo> out;
  const std::unique_ptr<DIR, CloseDir> proc{::opendir("/proc")};
  if (!proc) return out;
  while (const dirent* const entry = ::readdir(proc.get())) {
    const auto pid = parse_number<pid_t>(static_cast<const char*>(entry->d_name));
    if (!pid) continue;
    if (const auto info = read_stat(*pid)) out.emplace(info->parent, *info);
  }
  return out;
}

bool carries_tag(pid_t pid, const std::string& tag) {
  const std::string entry = fmt::format("{}={}", protocol::kEnvTag, tag) + '\0';
  const std::string environment = read_proc_file(pid, "environ");
  const std::size_t at = environment.find(entry);
  return at == 0 || (at != std::string::npos && environment[at - 1] == '\0');
}

// Sends SIGKILL through a pidfd. The start time is compared after the pidfd was opened, so the signal cannot hit
// another process that has got the same pid.
void kill_process(const ProcessInfo& target) {
  const UniqueFd pidfd{static_cast<int>(::syscall(SYS_pidfd_open, target.pid, 0))};
  if (!pidfd) return;
  const auto now = read_stat(target.pid);
  if (!now || now->start_time != target.start_time) return;
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
}

}  // namespace

std::vector<ProcessInfo> list_descendants(pid_t root) {
  const auto by_parent = processes_by_parent();
  std::vector<ProcessInfo> out;
  const auto add_children = [&](pid_t parent) {
    const auto [first, last] = by_parent.equal_range(parent);
    for (auto it = first; it != last; ++it) out.push_back(it->second);
  };
  add_children(root);
  // Loops by index, because the list grows meanwhile.
  // NOLINTNEXTLINE(modernize-loop-convert)
  for (std::size_t i = 0; i < out.size(); ++i) add_children(out[i].pid);
  return out;
}

void PoolProcesses::add(pid_t pid) {
  if (const auto info = read_stat(pid)) known_[pid] = info->start_time;
}

std::vector<ProcessInfo> PoolProcesses::find() {
  std::vector<ProcessInfo> living;
  std::set<pid_t> ours;
  for (const ProcessInfo& process : list_descendants(::getpid())) {
    const auto remembered = known_.find(process.pid);
    const bool known = remembered != known_.end() && remembered->second == process.start_time;
    if (!known && !ours.contains(process.parent) && !carries_tag(process.pid, tag_)) continue;
    ours.insert(process.pid);
    known_[process.pid] = process.start_time;
    if (!process.dead()) living.push_back(process);
  }
  return living;
}

std::size_t PoolProcesses::kill_all() {
  const std::vector<ProcessInfo> living = find();
  for (const ProcessInfo& process : living) kill_process(process);
  return living.size();
}

std::vector<Leftover> PoolProcesses::describe() {
  std::vector<Leftover> out;
  for (const ProcessInfo& process : find()) {
    out.push_back({process.pid, std::string(1, process.state), read_proc_file(process.pid, "wchan")});
  }
  return out;
}

bool set_child_subreaper(bool enabled) {
  int before = 0;
  if (::prctl(PR_GET_CHILD_SUBREAPER, &before) < 0 || ::prctl(PR_SET_CHILD_SUBREAPER, enabled ? 1 : 0) < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot become a child subreaper");
  }
  return before != 0;
}

void reap_adopted(const std::function<bool(pid_t)>& is_rank) {
  const pid_t self = ::getpid();
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0) return;
    if (is_rank(info.si_pid)) break;  // waitid would report this rank again and again, so look for the others below
    reap_if_exited(info.si_pid);
  }
  for (const ProcessInfo& process : list_descendants(self)) {
    if (process.parent == self && process.dead() && !is_rank(process.pid)) reap_if_exited(process.pid);
  }
}

}  // namespace cp_pool
