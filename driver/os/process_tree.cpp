#include "driver/os/process_tree.h"

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "cases/file_reader.h"
#include "cases/parse_number.h"
#include "cases/unique_fd.h"
#include "driver/os/spawn.h"
#include "worker/protocol/environment.h"

namespace cp_pool {

namespace {

// Returns the contents of a file of /proc/PID. Empty if the file is gone or may not be read: then the process has ended
// or does not concern the driver.
std::string read_proc_file(pid_t pid, const char* name) {
  try {
    return FileReader(fmt::format("/proc/{}/{}", pid, name)).read_all();
  } catch (const std::system_error&) {
    return "";
  }
}

// Parses /proc/PID/stat, see proc(5): "pid (comm) state ppid ...". Since comm may hold any characters, fields are
// counted from the last parenthesis.
std::optional<ProcessInfo> read_stat(pid_t pid) {
  const std::string text = read_proc_file(pid, "stat");
  const std::size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return std::nullopt;
  ProcessInfo out{.pid = pid};
  const int fields = std::sscanf(text.c_str() + end_of_name + 1,
                                 " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %lu",
                                 &out.state, &out.parent, &out.threads, &out.start_time);
  return fields == 4 ? std::optional(out) : std::nullopt;
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
  std::multimap<pid_t, ProcessInfo> by_parent;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", unreadable)) {
    const auto pid = parse_number<pid_t>(entry.path().filename().native());
    if (!pid) continue;
    if (const auto info = read_stat(*pid)) by_parent.emplace(info->parent, *info);
  }
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
