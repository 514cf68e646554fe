// A driver that only serves lifelines: `lifeline_driver [RANKS]`. It writes the variables that the ranks need, then a
// line for each event, and whatever the ranks write to stderr.
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include <asio/io_context.hpp>

#include "driver/ranks/driver_socket.h"

int main(int argc, char** argv) {
  asio::io_context io;
  const auto say = [](const std::string& line) {
    std::cout << line << std::endl;  // NOLINT(performance-avoid-endl): the test waits for it
  };
  cp_pool::DriverSocket::Config config;
  config.world_size = argc > 1 ? std::stoi(argv[1]) : 1;
  cp_pool::DriverSocket server(
      io, config,
      {.on_joined = [&](int, const cp_pool::lifeline::Joined& joined) { say("joined " + std::to_string(joined.pid)); },
       .on_closed =
           [&](int rank, const std::string& why) {
             const auto code = server.ranks()[static_cast<std::size_t>(rank)].ending;
             say(code ? "exit " + std::to_string(*code) : "closed " + why);
           },
       .on_stderr = [](int, std::string_view bytes) { std::cout << bytes << std::flush; }});
  for (const auto& [name, value] : server.variables()) say(name + "=" + value);
  io.run();
}
