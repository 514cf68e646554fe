// The driver's end of the lifelines of one launched pool (worker/protocol/lifeline_messages.h). Through lifelines the
// driver observes and controls ranks that are not its children.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>

#include "driver/core/clock.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

class LifelineServer {
 public:
  struct Config {
    int world_size = 1;
    // Addresses of this host to listen on. "::" stands for all addresses, IPv4 included.
    std::vector<std::string> listen{"::"};
    // First and last of the ports to try; 0: the kernel chooses one.
    std::pair<std::uint16_t, std::uint16_t> ports{0, 0};
    std::chrono::milliseconds silence{5000};     // time without a beat after which a rank counts as silent
    std::chrono::milliseconds patience{10000};   // time in which a new connection must send its Hello
    std::chrono::milliseconds beat_every{1000};  // interval of this server's beats
  };

  // All are called from the io_context. None may destroy the server.
  struct Functions {
    std::function<void(int rank, const lifeline::Hello&)> on_hello = [](int, const lifeline::Hello&) {};
    // The rank has been silent for this long. Called once, and again only after on_heard_again. Time in which the
    // driver is paused does not count.
    std::function<void(int rank, std::chrono::milliseconds)> on_silent = [](int, std::chrono::milliseconds) {};
    std::function<void(int rank)> on_heard_again = [](int) {};
    // The rank is about to end by itself with this exit code.
    std::function<void(int rank, int exit_code)> on_ending = [](int, int) {};
    // The process has ended or can no longer be reached. Called once, after the last on_hello, on_silent and on_ending
    // of the rank.
    std::function<void(int rank, const std::string& why)> on_closed = [](int, const std::string&) {};
    std::function<void(int rank, std::string_view bytes)> on_stderr = [](int, std::string_view) {};
    // The stream of the rank's stderr has ended. The rank may still run, and may never have had a stream: only
    // on_closed says that the rank is gone.
    std::function<void(int rank)> on_stderr_end = [](int) {};
    // Rank 0 has sent its rendezvous address. The server passes it on to the other ranks.
    std::function<void(const lifeline::Rendezvous&)> on_rendezvous = [](const lifeline::Rendezvous&) {};
  };

  // The known state of a rank.
  struct Rank {
    std::optional<lifeline::Hello> hello;  // what it has said first, without the token; none: it has not connected
    bool connected = false;
    bool closed = false;  // its connection has ended, and it cannot connect again
    bool silent = false;
    bool stderr_open = false;
    std::optional<int> ending;  // exit code that it has announced
  };

  // Starts to listen. Throws std::system_error, which names the address.
  LifelineServer(asio::io_context& io, Config config, Functions functions);
  LifelineServer(const LifelineServer&) = delete;
  LifelineServer& operator=(const LifelineServer&) = delete;
  ~LifelineServer();  // closes all connections, whereupon the ranks end themselves

  // The endpoints that it listens on. For a wildcard these are all addresses of this host, those of the loopback
  // interface last.
  [[nodiscard]] std::vector<lifeline::Endpoint> endpoints() const;
  [[nodiscard]] const std::string& token() const;
  // The variables CP_POOL_LIFELINE and CP_POOL_LIFELINE_TOKEN for the ranks.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> variables() const;

  [[nodiscard]] const std::vector<Rank>& ranks() const;
  // How long a connected rank has been silent. Time in which the driver was too busy to read does not count.
  [[nodiscard]] Clock::duration silence_of(int rank) const;
  // Whether no rank is connected and no stderr stream is open.
  [[nodiscard]] bool all_closed() const;

  // Orders to connected ranks. They do not wait for the effect.
  void show_stack(int rank);
  void end_all();

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace cp_pool
