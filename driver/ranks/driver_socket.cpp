#include "driver/ranks/driver_socket.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <sys/socket.h>
#include <sys/types.h>
#include <system_error>
#include <variant>

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/ip/v6_only.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "worker/protocol/block_signals.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/host_resources.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;

}  // namespace

OrderSender::OrderSender(std::chrono::milliseconds beat_every)
    : beat_every_(beat_every), line_(lifeline::line_of(lifeline::Order{lifeline::Beat{}})) {
  const BlockAllSignals block;  // signals are for the main thread
  thread_ = std::jthread([this](const std::stop_token& stop) { beat(stop); });
}

void OrderSender::add(int fd) {
  const std::lock_guard lock(mutex_);
  fds_.push_back(fd);
}

void OrderSender::remove(int fd) {
  const std::lock_guard lock(mutex_);
  std::erase(fds_, fd);
}

void OrderSender::send(int fd, std::string_view line) {
  const std::lock_guard lock(mutex_);
  write(fd, line);
}

void OrderSender::write(int fd, std::string_view line) {
  const ssize_t sent = ::send(fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(line.size())) ::shutdown(fd, SHUT_RDWR);
}

void OrderSender::beat(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    stopped_.wait_for(lock, stop, beat_every_, [] { return false; });
    for (const int fd : fds_) write(fd, line_);
  }
}

struct DriverSocket::Connection {
  Connection(asio::io_context& io, tcp::socket accepted) : socket(std::move(accepted)), patience(io) {}

  tcp::socket socket;
  Alarm patience;
  std::string line;                        // beginning of an incomplete line
  std::optional<lifeline::Stream> stream;  // none until it has sent its Joined
  int rank = 0;
  std::array<char, 65536> buffer{};

  [[nodiscard]] bool is(lifeline::Stream of, int of_rank) const { return stream == of && rank == of_rank; }
};

// --- Listening -------------------------------------------------------------------------------------------------------
DriverSocket::DriverSocket(asio::io_context& io, Config config, Functions functions)
    : io_(io),
      config_(config),
      functions_(std::move(functions)),
      token_(protocol::random_token()),
      acceptor_(io),
      accept_again_(io),
      ranks_(static_cast<std::size_t>(config_.world_size)),
      watch_timer_(io),
      watched_(Clock::now()),
      sender_(config_.beat_every) {
  listen();
  accept();
  watch_timer_.every(config_.silence / 10, [this] { watch_silence(); });
}

DriverSocket::~DriverSocket() {
  alive_.reset();
  for (const ConnectionRef& connection : connections_) close(*connection);
}

// Over IPv6, which accepts IPv4 too, or over IPv4 if the kernel has no IPv6.
void DriverSocket::listen() {
  std::error_code error;
  acceptor_.open(tcp::v6(), error);
  const tcp version = error ? tcp::v4() : tcp::v6();
  if (error) {
    acceptor_.open(version, error);
  } else {
    acceptor_.set_option(asio::ip::v6_only(false), error);
  }
  if (!error) acceptor_.bind({version, 0}, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (error) throw std::system_error(error, "lifelines: cannot listen");
}

void DriverSocket::accept() {
  acceptor_.async_accept([this, alive = std::weak_ptr<bool>(alive_)](std::error_code error, tcp::socket socket) {
    if (alive.expired()) return;
    if (!error) take(std::move(socket));
    if (!error || error == asio::error::connection_aborted) return accept();
    // Perhaps no file descriptor is left. Try again later, when there may be one.
    accept_again_.set(milliseconds{100}, [this] { accept(); });
  });
}

void DriverSocket::take(tcp::socket socket) {
  // All ranks may connect at the same time. Other connections are limited, so that they do not use up the file
  // descriptors.
  const auto strangers = std::ranges::count_if(connections_, [](const auto& c) { return !c->stream; });
  if (strangers >= 2 * config_.world_size + 16) return;
  std::error_code ignored;  // it works without, only slower
  socket.set_option(tcp::no_delay(true), ignored);
  const auto connection = std::make_shared<Connection>(io_, std::move(socket));
  connections_.insert(connection);
  connection->patience.set(config_.patience, [this, connection] {
    if (!connection->stream) drop(connection, "");
  });
  read(connection);
}

// --- Reading ---------------------------------------------------------------------------------------------------------
void DriverSocket::read(const ConnectionRef& connection) {
  connection->socket.async_read_some(
      asio::buffer(connection->buffer),
      [this, alive = std::weak_ptr<bool>(alive_), connection](std::error_code error, std::size_t size) {
        if (alive.expired() || !connection->socket.is_open()) return;
        if (error) return drop(connection, error == asio::error::eof ? "it closed the connection" : error.message());
        if (take_bytes(connection, {connection->buffer.data(), size})) read(connection);
      });
}

bool DriverSocket::take_bytes(const ConnectionRef& connection, std::string_view bytes) {
  while (connection->stream != lifeline::Stream::errors) {
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
      const auto* const joined = event ? std::get_if<lifeline::Joined>(&*event) : nullptr;
      if (connection->stream) {
        if (event) take_event(*connection, *event);
      } else if (joined == nullptr || !take_joined(connection, *joined)) {
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
  }
  if (!bytes.empty()) functions_.on_stderr(connection->rank, bytes);
  return true;
}

bool DriverSocket::take_joined(const ConnectionRef& connection, const lifeline::Joined& joined) {
  if (!protocol::is_same_secret(joined.token, token_)) return false;
  if (joined.rank < 0 || joined.rank >= config_.world_size) return false;
  Rank& rank = ranks_[static_cast<std::size_t>(joined.rank)];
  const bool messages = joined.stream == lifeline::Stream::messages;
  // A rank connects once for each stream. A second process with its number comes from a launcher that has started the
  // rank again, and is refused.
  const auto has_it = [&](const ConnectionRef& c) { return c->is(joined.stream, joined.rank); };
  if ((messages && rank.closed) || std::ranges::any_of(connections_, has_it)) return false;
  connection->stream = joined.stream;
  connection->rank = joined.rank;
  connection->patience.cancel();
  send(*connection, lifeline::Beat{});
  if (!messages) return true;
  rank.connected = true;
  rank.joined = joined;
  rank.joined->token.clear();
  rank.heard = Clock::now();
  if (rendezvous_ && joined.rank != 0) send(*connection, *rendezvous_);
  sender_.add(connection->socket.native_handle());
  functions_.on_joined(joined.rank, *rank.joined);
  return true;
}

void DriverSocket::take_event(const Connection& connection, const lifeline::Event& event) {
  Rank& rank = ranks_[static_cast<std::size_t>(connection.rank)];
  rank.heard = Clock::now();
  if (std::exchange(rank.silent, false)) functions_.on_heard_again(connection.rank);
  if (const auto* ending = std::get_if<lifeline::Ending>(&event)) rank.ending = ending->exit_code;
  const auto* const where = std::get_if<lifeline::Rendezvous>(&event);
  if (where == nullptr || connection.rank != 0 || rendezvous_) return;
  rendezvous_ = *where;
  for (int other = 1; other < config_.world_size; ++other) send_to(other, *rendezvous_);
}

void DriverSocket::drop(const ConnectionRef& connection, const std::string& why) {
  const bool listed = connections_.erase(connection) > 0;
  close(*connection);
  if (!listed || !connection->stream) return;
  Rank& rank = ranks_[static_cast<std::size_t>(connection->rank)];
  if (connection->stream == lifeline::Stream::errors) return functions_.on_stderr_end(connection->rank);
  rank.connected = false;
  rank.closed = true;
  functions_.on_closed(connection->rank, why);
}

void DriverSocket::close(Connection& connection) {
  if (connection.stream == lifeline::Stream::messages) sender_.remove(connection.socket.native_handle());
  std::error_code ignored;  // nothing more is sent on it
  connection.socket.close(ignored);
  connection.patience.cancel();
}

// --- Silence ---------------------------------------------------------------------------------------------------------
void DriverSocket::watch_silence() {
  const Clock::time_point now = Clock::now();
  const Clock::duration since = now - std::exchange(watched_, now);
  // This thread was busy and has not read what the ranks sent meanwhile, so the time does not count as silence of
  // theirs.
  if (since > config_.silence / 2) {
    for (Rank& rank : ranks_) rank.heard += since;
    return;
  }
  for (int rank = 0; rank < config_.world_size; ++rank) {
    Rank& r = ranks_[static_cast<std::size_t>(rank)];
    const Clock::duration silence = now - r.heard;
    if (!r.connected || silence < config_.silence) continue;
    if (!std::exchange(r.silent, true)) functions_.on_silent(rank);
    if (silence >= 2 * config_.silence) functions_.on_long_silence(rank);
  }
}

// --- Orders ----------------------------------------------------------------------------------------------------------
void DriverSocket::send(Connection& connection, const lifeline::Order& order) {
  sender_.send(connection.socket.native_handle(), lifeline::line_of(order));
}

void DriverSocket::send_to(int rank, const lifeline::Order& order) {
  for (const ConnectionRef& connection : connections_) {
    if (connection->is(lifeline::Stream::messages, rank)) send(*connection, order);
  }
}

void DriverSocket::end_all() {
  for (const ConnectionRef& connection : connections_) {
    if (connection->stream == lifeline::Stream::messages) send(*connection, lifeline::End{});
  }
}

// --- What is known ---------------------------------------------------------------------------------------------------
std::vector<lifeline::Endpoint> DriverSocket::endpoints() const {
  const tcp::endpoint local = acceptor_.local_endpoint();
  std::vector<lifeline::Endpoint> out;
  for (std::string& address : protocol::own_addresses()) {
    const bool six = address.find(':') != std::string::npos;
    if (!six || local.address().is_v6()) out.push_back({std::move(address), local.port()});
  }
  return out;
}

}  // namespace cp_pool
