#include "driver/os/process_settings.h"

#include <sys/prctl.h>

#include "driver/os/process_tree.h"

namespace cp_pool {

namespace {

struct sigaction replace_handler(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  struct sigaction before{};
  ::sigaction(signal, &action, &before);  // cannot fail for these signals
  return before;
}

}  // namespace

ProcessSettings::ProcessSettings() : subreaper_(set_child_subreaper(true)) {
  sigpipe_ = replace_handler(SIGPIPE, SIG_IGN);
  sigchld_ = replace_handler(SIGCHLD, SIG_DFL);
}

ProcessSettings::~ProcessSettings() {
  ::sigaction(SIGPIPE, &sigpipe_, nullptr);
  ::sigaction(SIGCHLD, &sigchld_, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, subreaper_ ? 1 : 0);
}

bool is_ignored(int signal) {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN;
}

void watch_for_hangup(asio::signal_set& signals) {
  if (!is_ignored(SIGHUP)) signals.add(SIGHUP);
}

}  // namespace cp_pool
