#include "worker/rendezvous.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "worker/connect.h"
#include "worker/control_plane.h"
#include "worker/protocol/lifeline_messages.h"
#include "worker/protocol/own_addresses.h"

namespace cp_pool {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace

std::string own_master_address(const Lifeline& lifeline, bool on_one_host) {
  if (on_one_host) return "127.0.0.1";
  for (const char* const variable : {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const std::string interface = protocol::process_variable(variable).value_or("");
    if (interface.empty()) continue;
    if (const auto addresses = protocol::own_addresses(interface); !addresses.empty()) return addresses.front();
  }
  std::string towards_driver = lifeline.local_address();
  if (!towards_driver.empty() && !is_loopback(towards_driver)) return towards_driver;
  const std::vector<std::string> addresses = protocol::own_addresses();
  return addresses.empty() ? "127.0.0.1" : addresses.front();
}

void announce_master(Lifeline& lifeline, protocol::RankEnvironment& environment, int port) {
  environment.master_port = static_cast<std::uint16_t>(port);
  lifeline.tell_rendezvous({protocol::host_name(), {environment.master_addr}, port});
}

void find_master(Lifeline& lifeline, protocol::RankEnvironment& environment) {
  constexpr seconds kLimit{20};
  constexpr seconds kOneTry{3};
  constexpr milliseconds kBetweenRounds{200};
  const lifeline::Rendezvous where = lifeline.await_rendezvous();
  environment.master_port = static_cast<std::uint16_t>(where.port);
  const bool on_its_host = where.host == protocol::host_name();
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  std::string tried;
  do {
    tried.clear();
    for (const std::string& address : where.addresses) {
      if (is_loopback(address) && !on_its_host) continue;  // on this host another process may listen there
      const lifeline::Endpoint endpoint{address, environment.master_port};
      std::string why;
      if (const int fd = connect_within(endpoint, kOneTry, why); fd >= 0) {
        ::close(fd);
        environment.master_addr = address;
        return;
      }
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", lifeline::to_string(endpoint), why);
    }
    std::this_thread::sleep_for(kBetweenRounds);
  } while (std::chrono::steady_clock::now() < deadline);
  throw ControlPlaneError(
      fmt::format("rank {} on host {} cannot reach rank 0 on host {} ({}): GLOO_SOCKET_IFNAME, on GPUs "
                  "NCCL_SOCKET_IFNAME, names the network interface on which the hosts reach each other",
                  environment.rank, protocol::host_name(), where.host, tried));
}

}  // namespace cp_pool
