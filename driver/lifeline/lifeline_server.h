// The driver's end of the lifelines of one launched pool (worker/protocol/lifeline_messages.h): what it knows of ranks
// that are no children of its own, and how it reaches them.
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

#include "driver/clock.h"
#include "worker/protocol/lifeline_messages.h"

namespace cp_pool {

class LifelineServer {
 public:
  struct Config {
    int world_size = 1;
    // Addresses of this host to listen on. "::" is every address, of IPv4 too.
    std::vector<std::string> listen{"::"};
    // Ports to try, first and last; 0: one that the kernel chooses.
    std::pair<std::uint16_t, std::uint16_t> ports{0, 0};
    std::chrono::milliseconds silence{5000};     // without a beat of a rank, until it is told
    std::chrono::milliseconds patience{10000};   // for the Hello of a connection
    std::chrono::milliseconds beat_every{1000};  // of this server's
  };

  // Each is called from the io_context. None may destroy the server.
  struct Functions {
    std::function<void(int rank, const lifeline::Hello&)> on_hello = [](int, const lifeline::Hello&) {};
    // It has not been heard of for so long; once, until it is heard of again. A pause of the driver's does not count.
    std::function<void(int rank, std::chrono::milliseconds)> on_silent = [](int, std::chrono::milliseconds) {};
    std::function<void(int rank)> on_heard_again = [](int) {};
    // It will end with this exit code, by itself.
    std::function<void(int rank, int exit_code)> on_ending = [](int, int) {};
    // The process has ended, or cannot be reached any more; once, the last word of on_hello, on_silent and on_ending.
    std::function<void(int rank, const std::string& why)> on_closed = [](int, const std::string&) {};
    std::function<void(int rank, std::string_view bytes)> on_stderr = [](int, std::string_view) {};
    // Nobody holds the rank's stderr any more, or it was never there: on_closed alone says that the rank is gone.
    std::function<void(int rank)> on_stderr_end = [](int) {};
    // Of rank 0. The server tells the other ranks by itself.
    std::function<void(const lifeline::Rendezvous&)> on_rendezvous = [](const lifeline::Rendezvous&) {};
  };

  // What is known of a rank.
  struct Rank {
    std::optional<lifeline::Hello> hello;  // without the token
    bool connected = false;
    bool closed = false;  // it was connected; it does not come back
    bool silent = false;
    bool stderr_open = false;
    std::optional<int> ending;  // exit code
  };

  // Listens from now on. Throws std::system_error, which names the address.
  LifelineServer(asio::io_context& io, Config config, Functions functions);
  LifelineServer(const LifelineServer&) = delete;
  LifelineServer& operator=(const LifelineServer&) = delete;
  ~LifelineServer();  // closes all: ranks that are connected end themselves

  // Where it listens. Of a wildcard: every address of this host, those of the loopback interface last.
  [[nodiscard]] std::vector<lifeline::Endpoint> endpoints() const;
  [[nodiscard]] const std::string& token() const;
  // CP_POOL_LIFELINE and CP_POOL_LIFELINE_TOKEN for the ranks.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> variables() const;

  [[nodiscard]] const std::vector<Rank>& ranks() const;
  // How long nothing has been heard of a rank that is connected, if the driver was not busy all the while.
  [[nodiscard]] Clock::duration silence_of(int rank) const;
  // No rank is connected, and no stderr of one is open.
  [[nodiscard]] bool all_closed() const;

  // Orders, to ranks that are connected. None waits.
  void show_stack(int rank);
  void end(int rank);
  void end_all();
  // Before this process stops, and when it goes on: ranks do not mind its silence between the two.
  void pause();
  void resume();

  // Nobody is accepted any more. Connections that are there stay.
  void stop_listening();

 private:
  struct Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace cp_pool
