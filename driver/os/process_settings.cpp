#include "driver/os/process_settings.h"

#include <cerrno>
#include <sys/prctl.h>
#include <system_error>

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

ProcessSettings::ProcessSettings() {
  if (::prctl(PR_GET_CHILD_SUBREAPER, &subreaper_) < 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot become a child subreaper");
  }
  sigpipe_ = replace_handler(SIGPIPE, SIG_IGN);
  sigchld_ = replace_handler(SIGCHLD, SIG_DFL);
}

ProcessSettings::~ProcessSettings() {
  ::sigaction(SIGPIPE, &sigpipe_, nullptr);
  ::sigaction(SIGCHLD, &sigchld_, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, subreaper_);
}

bool is_ignored(int signal) {
  struct sigaction now{};
  return ::sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_IGN;
}

}  // namespace cp_pool
