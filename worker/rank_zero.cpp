#include "worker/rank_zero.h"

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "worker/control_plane.h"
#include "worker/coordinator.h"
#include "worker/data_plane.h"
#include "worker/mailroom.h"
#include "worker/request_reader.h"
#include "worker/response_writer.h"

namespace cp_pool {

namespace {

struct EndOfInput {};
using Item = std::variant<protocol::Request, protocol::ProtocolError, EndOfInput, RankMessage>;

class ServerPorts final : public Coordinator::Ports {
 public:
  ServerPorts(MailServer& server, FaultInjector faults, int stdout_fd)
      : server_(server), faults_(std::move(faults)), writer_(stdout_fd) {}

  void emit(const protocol::Event& event) override {
    const bool breaks = std::holds_alternative<protocol::ResultEvent>(event) && faults_.is_armed(Fault::Phase::result);
    writer_.write(event, breaks ? [this] { faults_.reach(Fault::Phase::result); } : std::function<void()>{});
  }
  void command(const ComputeCommand& command) override {
    if (const auto* run = std::get_if<RunCommand>(&command)) faults_.start_case(run->request.id, run->request.seq);
    server_.to_compute(command);
  }
  void watch(const WatchCommand& command) override { server_.to_watchers(command); }
  Coordinator::Clock::time_point now() override { return Coordinator::Clock::now(); }
  void forget_generation(int generation) override { server_.delete_keys(generation_prefix(generation)); }

 private:
  MailServer& server_;
  FaultInjector faults_;
  ResponseWriter writer_;
};

void dispatch(Coordinator& coordinator, const Item& item) {
  if (const auto* request = std::get_if<protocol::Request>(&item)) coordinator.on_request(*request);
  if (const auto* error = std::get_if<protocol::ProtocolError>(&item)) coordinator.on_bad_request(*error);
  if (const auto* message = std::get_if<RankMessage>(&item)) coordinator.on_rank_message(*message);
  if (std::holds_alternative<EndOfInput>(item)) coordinator.on_end_of_input();
}

}  // namespace

class RankZero::Threads {
 public:
  Threads(MailServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd, int stdout_fd)
      : server_(server),
        ports_(server, std::move(faults), stdout_fd),
        coordinator_(ports_, ready),
        reader_(stdin_fd, {.request = [this](const protocol::Request& r) { items_.put(r); },
                           .bad_request = [this](const protocol::ProtocolError& e) { items_.put(e); },
                           .end_of_input = [this] { items_.put(EndOfInput{}); }}) {
    server_.on_rank0([this](const Bytes& message) { collect(message); });
    protocol_ = std::jthread([this] { serve(); });
  }

  bool wait() {
    if (protocol_.joinable()) protocol_.join();
    server_.on_rank0(nullptr);
    return coordinator_.stopped_cleanly();
  }

 private:
  void collect(const Bytes& message) {
    try {
      items_.put(decode_rank_message(message));
    } catch (const std::exception& e) {
      fmt::print(stderr, "cp-pool-worker: rank 0: {}\n", e.what());
      items_.put(EndOfInput{});
    }
  }

  void serve() {
    try {
      while (!coordinator_.finished()) {
        if (const std::optional<Item> item = items_.take(coordinator_.next_deadline())) {
          dispatch(coordinator_, *item);
        } else {
          coordinator_.on_time();
        }
      }
    } catch (const std::exception& e) {
      // Without this thread the driver would never hear of this pool again, so the process ends.
      fmt::print(stderr, "cp-pool-worker: rank 0: the protocol thread failed: {}\n", e.what());
      _exit(1);
    }
  }

  Mailroom<Item> items_;
  MailServer& server_;
  ServerPorts ports_;
  Coordinator coordinator_;
  RequestReader reader_;
  std::jthread protocol_;
};

RankZero::RankZero(MailServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd,
                   int stdout_fd)
    : threads_(std::make_unique<Threads>(server, ready, std::move(faults), stdin_fd, stdout_fd)) {}

RankZero::~RankZero() {
  threads_->wait();
}

bool RankZero::wait() {
  return threads_->wait();
}

}  // namespace cp_pool
