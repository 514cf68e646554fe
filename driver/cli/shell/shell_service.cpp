#include "driver/cli/shell/shell_service.h"

#include <array>
#include <csignal>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "driver/cli/error_reporting.h"
#include "driver/cli/program_paths.h"
#include "driver/core/exit_code.h"
#include "driver/service/service_client.h"
#include "driver/service/socket.h"

namespace cp_pool {
namespace {

constexpr const char* kClientName = "cp-pool shell";
constexpr int kPatienceForEndMs = 20000;  // the service gives its ranks some seconds to end by themselves

std::string own_name() {
  return fmt::format("shell-{}", ::getpid());
}

// True if the default service is there and can be used.
bool default_is_there() {
  try {
    return service::ServiceConnection::find(service::kDefaultName, kClientName).has_value();
  } catch (const service::SocketError& error) {
    report_warning(fmt::format("this shell does not use service '{}': {}", service::kDefaultName, error.what()));
    return false;
  }
}

bool is_readable(int fd, int timeout_ms) {
  pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
  return TEMP_FAILURE_RETRY(::poll(&wait, 1, timeout_ms)) > 0;
}

}  // namespace

ShellService::~ShellService() {
  if (!own_) return;
  ::kill(own_->pid, SIGTERM);
  // Runs of other clients on this service end, too.
  if (!is_readable(own_->pidfd.get(), kPatienceForEndMs)) ::kill(own_->pid, SIGKILL);
  reap();
}

std::string ShellService::name() {
  if (options_.wanted) return *options_.wanted;
  if (own_ && !is_readable(own_->pidfd.get(), 0)) return own_name();  // it has not ended
  if (!own_ && options_.serve.empty() && default_is_there()) return service::kDefaultName;
  start();
  return own_name();
}

void ShellService::start() {
  if (own_) reap();
  std::vector<std::string> words{program_path().string(), "serve", "--name", own_name()};
  words.insert(words.end(), options_.serve.begin(), options_.serve.end());
  Pipe pipe = make_pipe();
  try {
    own_ = spawn({.argv = words, .stderr_fd = pipe.write.get()});
  } catch (const SpawnError& error) {
    throw CommandError(ExitCode::infra, error.what());
  }
  own_stderr_ = std::move(pipe.read);
  pipe.write.reset();
  wait_for_listener();
  report_notice(fmt::format("service '{}' (process {}) is started: it ends with this shell", own_name(), own_->pid));
}

// The first line of the service on stderr says that it listens, or why it does not.
void ShellService::wait_for_listener() {
  std::string said;
  while (said.find('\n') == std::string::npos) {
    std::array<char, 1024> chunk{};
    const ssize_t size = TEMP_FAILURE_RETRY(::read(own_stderr_.get(), chunk.data(), chunk.size()));
    if (size <= 0) break;
    said.append(chunk.data(), static_cast<std::size_t>(size));
  }
  if (said.find(" listens on ") != std::string::npos) return;
  ::kill(own_->pid, SIGTERM);
  reap();
  while (said.ends_with('\n')) said.pop_back();
  throw CommandError(ExitCode::infra, fmt::format("a service for this shell does not start: {}", said));
}

void ShellService::reap() {
  TEMP_FAILURE_RETRY(::waitpid(own_->pid, nullptr, 0));
  own_.reset();
}

}  // namespace cp_pool
