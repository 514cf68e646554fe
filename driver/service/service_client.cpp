#include "driver/service/service_client.h"

#include <array>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/service/socket.h"
#include "worker/protocol/json_fields.h"

namespace cp_pool::service {
namespace {

constexpr int kPatienceMs = 10000;  // for the answer to a request that runs no case

[[noreturn]] void fail_of(const std::string& name, const std::string& why) {
  throw SocketError(fmt::format("service '{}': {}", name, why));
}

}  // namespace

std::optional<ServiceConnection> ServiceConnection::find(const std::string& name, const std::string& client) {
  UniqueFd fd = connect_to(socket_path(name));
  if (!fd) return std::nullopt;
  ServiceConnection out(std::move(fd), name);
  out.send(Hello{.protocol = kVersion, .version = CP_POOL_VERSION, .client = client});
  const std::optional<Reply> reply = out.receive();
  // The service ended after the connection was made.
  if (!reply) return std::nullopt;
  const auto* const welcome = std::get_if<Welcome>(&*reply);
  if (welcome == nullptr) fail_of(name, "the first answer is not a welcome message");
  if (welcome->protocol != kVersion) {
    fail_of(name, fmt::format("the service speaks version {} of the protocol, and this cp-pool speaks version {}: "
                              "restart the older of the two",
                              welcome->protocol, kVersion));
  }
  out.pid_ = welcome->pid;
  return out;
}

void ServiceConnection::send(const Request& request) {
  const std::string line = line_of(request);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t sent = TEMP_FAILURE_RETRY(::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL));
    if (sent < 0) return;  // the connection is lost, which the next read will show
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::optional<Reply> ServiceConnection::receive() {
  for (;;) {
    if (const std::size_t end = received_.find('\n'); end != std::string::npos) {
      const std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      try {
        std::optional<Reply> reply = read_reply(protocol::parse_foreign_json(line));
        if (!reply) continue;
        if (const auto* refused = std::get_if<Refused>(&*reply)) fail_of(name_, refused->message);
        return reply;
      } catch (const SocketError&) {
        throw;
      } catch (const std::exception& error) {  // errors of JSON and of messages
        fail_of(name_, fmt::format("the answer is not a message of the protocol: {}", error.what()));
      }
    }
    if (!read_more(kPatienceMs)) return std::nullopt;
  }
}

Status ServiceConnection::ask_status() {
  send(AskStatus{});
  while (const std::optional<Reply> reply = receive()) {
    if (const auto* status = std::get_if<Status>(&*reply)) return *status;
  }
  fail_of(name_, "the connection was lost");
}

void ServiceConnection::stop() {
  send(Stop{});
  // The service closes the connection when it ends, after finishing the cases that run.
  while (read_more(-1)) received_.clear();
}

// Waits for bytes; without a limit if limit_ms is -1. Returns false if the service has closed the connection.
bool ServiceConnection::read_more(int limit_ms) {
  pollfd wait{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  if (TEMP_FAILURE_RETRY(::poll(&wait, 1, limit_ms)) == 0) {
    fail_of(name_, fmt::format("process {} did not answer within {} s", pid_, limit_ms / 1000));
  }
  std::array<char, 4096> chunk{};
  const ssize_t size = TEMP_FAILURE_RETRY(::recv(fd_.get(), chunk.data(), chunk.size(), 0));
  if (size <= 0) return false;
  received_.append(chunk.data(), static_cast<std::size_t>(size));
  return true;
}

void ServiceConnection::open(const Open& request) {
  send(request);
  // The first event of the run is the answer.
  const std::optional<Reply> reply = receive();
  if (!reply) fail_of(name_, "the connection was lost");
  if (!std::holds_alternative<Happened>(*reply)) fail_of(name_, "the first answer does not open the run");
}

Open open_request(const RunConfig& config, const RunStarted& header) {
  Open out;
  static_cast<RunSettings&>(out) = config;
  if (config.dump_dir) out.dump_dir = std::filesystem::absolute(*config.dump_dir);
  out.run = kRun;
  out.folder = std::filesystem::current_path().string();
  out.environment = rank_variables(own_environment());
  out.title = header.title;
  out.size = header.size;
  return out;
}

}  // namespace cp_pool::service
