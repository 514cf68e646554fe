#include "driver/pool/run_signals.h"

#include <csignal>

namespace cp_pool {

void watch_for_hangup(asio::signal_set& signals) {
  struct sigaction now = {};
  if (sigaction(SIGHUP, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) signals.add(SIGHUP);
}

}  // namespace cp_pool
