#include "driver/ranks/lifeline_server.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <span>
#include <system_error>
#include <utility>
#include <variant>

#include <asio/basic_waitable_timer.hpp>
#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "driver/core/clock.h"
#include "driver/ranks/order_sender.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/own_addresses.h"
#include "worker/protocol/token.h"

namespace cp_pool {

namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;
using Timer = asio::basic_waitable_timer<Clock>;

}  // namespace

// Pending operations keep the object alive. After close() it calls no function any more.
struct LifelineServer::Implementation : std::enable_shared_from_this<Implementation> {
  struct Connection {
    explicit Connection(tcp::socket accepted) : socket(std::move(accepted)), patience(socket.get_executor()) {}

    tcp::socket socket;
    Timer patience;
    std::string line;                        // beginning of an incomplete line
    std::optional<lifeline::Stream> stream;  // none until it has sent its Hello
    int rank = 0;
    std::array<char, 65536> buffer{};
  };
  using ConnectionRef = std::shared_ptr<Connection>;

  Implementation(asio::io_context& io_context, Config with, Functions told);

  void listen();
  void listen_on(const std::string& address);
  void accept(tcp::acceptor& acceptor);
  void take(tcp::socket socket);
  void read(const ConnectionRef& connection);
  // Handle received bytes. Return false if the connection was closed.
  bool take_bytes(const ConnectionRef& connection, std::string_view bytes);
  bool take_lines(const ConnectionRef& connection, std::string_view bytes);
  bool take_hello(const ConnectionRef& connection, const lifeline::Hello& hello);
  void take_event(Connection& connection, const lifeline::Event& event);
  void drop(const ConnectionRef& connection, const std::string& why);
  void heard(int rank);
  void watch();
  void watch_silence();
  void send(Connection& connection, const lifeline::Order& order);
  void send_to(int rank, const lifeline::Order& order);
  void send_all(const lifeline::Order& order);
  void close();
  Connection* messages_of(int rank) const;

  asio::io_context& io;
  Config config;
  Functions functions;
  std::string token = protocol::random_token();
  std::vector<tcp::acceptor> acceptors;
  std::set<ConnectionRef> connections;
  std::vector<Rank> ranks;
  std::vector<Clock::time_point> last_heard;  // time of the last message, by rank
  std::optional<lifeline::Rendezvous> rendezvous;
  Timer watch_timer;
  Clock::time_point watched;
  bool closed = false;
  OrderSender sender;
};

LifelineServer::Implementation::Implementation(asio::io_context& io_context, Config with, Functions told)
    : io(io_context),
      config(std::move(with)),
      functions(std::move(told)),
      ranks(static_cast<std::size_t>(config.world_size)),
      last_heard(ranks.size()),
      watch_timer(io_context),
      sender(config.beat_every) {}

// --- Listening -------------------------------------------------------------------------------------------------------
void LifelineServer::Implementation::listen() {
  acceptors.reserve(config.listen.size());
  for (const std::string& address : config.listen) listen_on(address);
  for (tcp::acceptor& acceptor : acceptors) accept(acceptor);
  watched = Clock::now();
  watch();
}

void LifelineServer::Implementation::listen_on(const std::string& address) {
  std::error_code error;
  asio::ip::address parsed = asio::ip::make_address(address, error);
  if (error) throw std::system_error(error, fmt::format("lifelines: \"{}\" is no address", address));
  tcp::acceptor acceptor(io);
  acceptor.open(parsed.is_v6() ? tcp::v6() : tcp::v4(), error);
  if (error && parsed.is_v6() && parsed.is_unspecified()) {  // the kernel has no IPv6
    parsed = asio::ip::address_v4::any();
    acceptor.open(tcp::v4(), error);
  }
  if (!error && parsed.is_v6()) acceptor.set_option(asio::ip::v6_only(!parsed.is_unspecified()), error);
  const auto [first, last] = config.ports;
  for (int port = first; !error && port <= last; ++port) {
    acceptor.bind({parsed, static_cast<std::uint16_t>(port)}, error);
    if (error != asio::error::address_in_use || port == last) break;
    error.clear();
  }
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) throw std::system_error(error, fmt::format("lifelines: cannot listen on {}", address));
  acceptors.push_back(std::move(acceptor));
}

void LifelineServer::Implementation::accept(tcp::acceptor& acceptor) {
  acceptor.async_accept([self = shared_from_this(), &acceptor](std::error_code error, tcp::socket socket) {
    if (self->closed || !acceptor.is_open()) return;
    if (!error) self->take(std::move(socket));
    if (!error || error == asio::error::connection_aborted) return self->accept(acceptor);
    // Perhaps no file descriptor is left. Try again later, when there may be one.
    constexpr milliseconds kPause{100};
    auto timer = std::make_shared<Timer>(self->io, kPause);
    timer->async_wait([self, &acceptor, timer](std::error_code) {
      if (!self->closed && acceptor.is_open()) self->accept(acceptor);
    });
  });
}

void LifelineServer::Implementation::take(tcp::socket socket) {
  // All ranks may connect at the same time. Other connections are limited, so that they do not use up the file
  // descriptors.
  const auto strangers = std::ranges::count_if(connections, [](const auto& c) { return !c->stream; });
  if (strangers >= 2 * config.world_size + 16) return;
  std::error_code ignored;  // it works without, only slower
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = std::make_shared<Connection>(std::move(socket));
  connections.insert(connection);
  connection->patience.expires_after(config.patience);
  connection->patience.async_wait([self = shared_from_this(), connection](std::error_code error) {
    if (!error && !self->closed && !connection->stream) self->drop(connection, "");
  });
  read(connection);
}

// --- Reading ---------------------------------------------------------------------------------------------------------
void LifelineServer::Implementation::read(const ConnectionRef& connection) {
  connection->socket.async_read_some(asio::buffer(connection->buffer), [self = shared_from_this(), connection](
                                                                           std::error_code error, std::size_t size) {
    if (self->closed || !connection->socket.is_open()) return;
    if (error) {
      return self->drop(connection, error == asio::error::eof ? "it closed the connection" : error.message());
    }
    if (self->take_bytes(connection, {connection->buffer.data(), size})) self->read(connection);
  });
}

bool LifelineServer::Implementation::take_bytes(const ConnectionRef& connection, std::string_view bytes) {
  if (connection->stream == lifeline::Stream::errors) {
    functions.on_stderr(connection->rank, bytes);
    return true;
  }
  return take_lines(connection, bytes);
}

bool LifelineServer::Implementation::take_lines(const ConnectionRef& connection, std::string_view bytes) {
  for (;;) {
    const std::size_t newline = bytes.find('\n');
    connection->line += bytes.substr(0, newline);
    if (connection->line.size() > lifeline::kMaxLineBytes) {
      drop(connection, fmt::format("a line of more than {} bytes", lifeline::kMaxLineBytes));
      return false;
    }
    if (newline == std::string_view::npos) return true;
    bytes.remove_prefix(newline + 1);
    const std::string line = std::exchange(connection->line, {});
    try {
      const std::optional<lifeline::Event> event = lifeline::read_event(line);
      const auto* const hello = event ? std::get_if<lifeline::Hello>(&*event) : nullptr;
      if (connection->stream) {
        if (event) take_event(*connection, *event);
      } else if (hello == nullptr || !take_hello(connection, *hello)) {
        drop(connection, "");
        return false;
      }
    } catch (const protocol::ProtocolError& e) {
      drop(connection, fmt::format("it sent a line that is no message: {}", e.what()));
      return false;
    } catch (const nlohmann::json::exception&) {
      drop(connection, "it sent a line that is no JSON");
      return false;
    }
    if (!connection->socket.is_open()) return false;
    if (connection->stream == lifeline::Stream::errors) {
      if (!bytes.empty()) functions.on_stderr(connection->rank, bytes);
      return true;
    }
  }
}

bool LifelineServer::Implementation::take_hello(const ConnectionRef& connection, const lifeline::Hello& hello) {
  if (!protocol::is_same_secret(hello.token, token)) return false;
  if (hello.rank < 0 || hello.rank >= config.world_size) return false;
  Rank& rank = ranks[static_cast<std::size_t>(hello.rank)];
  const bool messages = hello.stream == lifeline::Stream::messages;
  // A rank connects once for each stream. A second process with its number comes from a launcher that has started the
  // rank again, and is refused.
  const auto has_it = [&](const ConnectionRef& c) { return c->stream == hello.stream && c->rank == hello.rank; };
  if ((messages && rank.closed) || std::ranges::any_of(connections, has_it)) return false;
  connection->stream = hello.stream;
  connection->rank = hello.rank;
  connection->patience.cancel();
  send(*connection, lifeline::Beat{});
  if (!messages) {
    rank.stderr_open = true;
    return true;
  }
  rank.connected = true;
  rank.hello = hello;
  rank.hello->token.clear();
  last_heard[static_cast<std::size_t>(hello.rank)] = Clock::now();
  if (rendezvous && hello.rank != 0) send(*connection, *rendezvous);
  sender.add(connection->socket.native_handle());
  functions.on_hello(hello.rank, *rank.hello);
  return true;
}

void LifelineServer::Implementation::take_event(Connection& connection, const lifeline::Event& event) {
  const int rank = connection.rank;
  heard(rank);
  if (const auto* ending = std::get_if<lifeline::Ending>(&event)) {
    ranks[static_cast<std::size_t>(rank)].ending = ending->exit_code;
    functions.on_ending(rank, ending->exit_code);
  }
  const auto* const where = std::get_if<lifeline::Rendezvous>(&event);
  if (where == nullptr || rank != 0 || rendezvous) return;
  rendezvous = *where;
  for (int other = 1; other < config.world_size; ++other) send_to(other, *rendezvous);
  functions.on_rendezvous(*rendezvous);
}

void LifelineServer::Implementation::drop(const ConnectionRef& connection, const std::string& why) {
  const bool listed = connections.erase(connection) > 0;
  if (connection->stream == lifeline::Stream::messages) sender.remove(connection->socket.native_handle());
  std::error_code ignored;  // nothing more is sent on it
  connection->socket.close(ignored);
  connection->patience.cancel();
  if (!listed || !connection->stream) return;
  Rank& rank = ranks[static_cast<std::size_t>(connection->rank)];
  if (connection->stream == lifeline::Stream::errors) {
    rank.stderr_open = false;
    return functions.on_stderr_end(connection->rank);
  }
  rank.connected = false;
  rank.closed = true;
  functions.on_closed(connection->rank, why);
}

// --- Silence ---------------------------------------------------------------------------------------------------------
void LifelineServer::Implementation::heard(int rank) {
  last_heard[static_cast<std::size_t>(rank)] = Clock::now();
  if (!std::exchange(ranks[static_cast<std::size_t>(rank)].silent, false)) return;
  functions.on_heard_again(rank);
}

void LifelineServer::Implementation::watch() {
  watch_timer.expires_after(config.silence / 10);
  watch_timer.async_wait([self = shared_from_this()](std::error_code error) {
    if (error || self->closed) return;
    self->watch_silence();
    self->watch();
  });
}

void LifelineServer::Implementation::watch_silence() {
  const Clock::time_point now = Clock::now();
  const Clock::duration since = now - std::exchange(watched, now);
  // This thread was busy and has not read what the ranks sent meanwhile, so the time does not count as silence of
  // theirs.
  if (since > config.silence / 2) {
    for (Clock::time_point& heard : last_heard) heard += since;
    return;
  }
  for (int rank = 0; rank < config.world_size; ++rank) {
    Rank& r = ranks[static_cast<std::size_t>(rank)];
    const Clock::duration silence = now - last_heard[static_cast<std::size_t>(rank)];
    if (!r.connected || r.silent || silence < config.silence) continue;
    r.silent = true;
    functions.on_silent(rank, std::chrono::duration_cast<milliseconds>(silence));
  }
}

// --- Orders ----------------------------------------------------------------------------------------------------------
void LifelineServer::Implementation::send(Connection& connection, const lifeline::Order& order) {
  sender.send(connection.socket.native_handle(), lifeline::line_of(order));
}

LifelineServer::Implementation::Connection* LifelineServer::Implementation::messages_of(int rank) const {
  const auto found = std::ranges::find_if(connections, [rank](const ConnectionRef& c) {
    return c->stream == lifeline::Stream::messages && c->rank == rank;
  });
  return found == connections.end() ? nullptr : found->get();
}

void LifelineServer::Implementation::send_to(int rank, const lifeline::Order& order) {
  if (Connection* const connection = messages_of(rank)) send(*connection, order);
}

void LifelineServer::Implementation::send_all(const lifeline::Order& order) {
  for (const ConnectionRef& connection : connections) {
    if (connection->stream == lifeline::Stream::messages) send(*connection, order);
  }
}

void LifelineServer::Implementation::close() {
  closed = true;
  std::error_code ignored;
  for (tcp::acceptor& acceptor : acceptors) acceptor.close(ignored);
  watch_timer.cancel();
  for (const ConnectionRef& connection : connections) {
    if (connection->stream == lifeline::Stream::messages) sender.remove(connection->socket.native_handle());
    connection->socket.close(ignored);
    connection->patience.cancel();
  }
  connections.clear();
}

// --- The server ------------------------------------------------------------------------------------------------------
LifelineServer::LifelineServer(asio::io_context& io, Config config, Functions functions)
    : implementation_(std::make_shared<Implementation>(io, std::move(config), std::move(functions))) {
  implementation_->listen();
}

LifelineServer::~LifelineServer() {
  implementation_->close();
}

std::vector<lifeline::Endpoint> LifelineServer::endpoints() const {
  std::vector<lifeline::Endpoint> out;
  for (const tcp::acceptor& acceptor : implementation_->acceptors) {
    std::error_code closed;
    const tcp::endpoint local = acceptor.local_endpoint(closed);
    if (closed) continue;
    if (!local.address().is_unspecified()) {
      out.push_back({local.address().to_string(), local.port()});
      continue;
    }
    for (std::string& address : protocol::own_addresses()) {
      const bool six = address.find(':') != std::string::npos;
      if (!six || local.address().is_v6()) out.push_back({std::move(address), local.port()});
    }
  }
  return out;
}

const std::string& LifelineServer::token() const {
  return implementation_->token;
}

std::vector<std::pair<std::string, std::string>> LifelineServer::variables() const {
  return {{lifeline::kEnvAddresses, lifeline::join_endpoints(endpoints())}, {lifeline::kEnvToken, token()}};
}

const std::vector<LifelineServer::Rank>& LifelineServer::ranks() const {
  return implementation_->ranks;
}

Clock::duration LifelineServer::silence_of(int rank) const {
  return Clock::now() - implementation_->last_heard[static_cast<std::size_t>(rank)];
}

bool LifelineServer::all_closed() const {
  return std::ranges::none_of(ranks(), [](const Rank& rank) { return rank.connected || rank.stderr_open; });
}

void LifelineServer::show_stack(int rank) {
  implementation_->send_to(rank, lifeline::ShowStack{});
}

void LifelineServer::end_all() {
  implementation_->send_all(lifeline::End{});
}

}  // namespace cp_pool
