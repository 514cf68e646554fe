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

class StorePorts final : public Coordinator::Ports {
 public:
  StorePorts(const protocol::RankEnvironment& environment, FaultInjector faults, int stdout_fd)
      : mail_(environment), faults_(std::move(faults)), writer_(stdout_fd) {}

  void emit(const protocol::Event& event) override {
    const bool breaks = std::holds_alternative<protocol::ResultEvent>(event) && faults_.is_armed(Fault::Phase::result);
    writer_.write(event, breaks ? [this] { faults_.reach(Fault::Phase::result); } : std::function<void()>{});
  }
  void command(int rank, const ComputeCommand& command) override {
    if (const auto* run = std::get_if<RunCommand>(&command)) faults_.start_case(run->request.id, run->request.seq);
    mail_.to_compute(rank, command);
  }
  void watch(int rank, const WatchCommand& command) override { mail_.to_watcher(rank, command); }
  Coordinator::Clock::time_point now() override { return Coordinator::Clock::now(); }
  void forget_generation(int generation) override { mail_.delete_keys(generation_prefix(generation)); }

 private:
  Mail mail_;
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
  Threads(const protocol::RankEnvironment& environment, const protocol::ReadyEvent& ready, FaultInjector faults,
          int stdin_fd, int stdout_fd)
      : ports_(environment, std::move(faults), stdout_fd),
        coordinator_(ports_, ready),
        collected_mail_(environment),
        stop_mail_(environment),
        reader_(stdin_fd, {.request = [this](const protocol::Request& r) { items_.put(r); },
                           .bad_request = [this](const protocol::ProtocolError& e) { items_.put(e); },
                           .end_of_input = [this] { items_.put(EndOfInput{}); }}) {
    collector_ = std::jthread([this] { collect(); });
    protocol_ = std::jthread([this] { serve(); });
  }

  bool wait() {
    if (protocol_.joinable()) protocol_.join();
    // The collector ends at a goodbye in the name of no rank.
    if (collector_.joinable()) {
      stop_mail_.to_rank0(Goodbye{kNoRank});
      collector_.join();
    }
    return coordinator_.stopped_cleanly();
  }

 private:
  static constexpr int kNoRank = -1;

  void collect() {
    try {
      for (;;) {
        RankMessage message = collected_mail_.receive_rank0();
        const auto* const goodbye = std::get_if<Goodbye>(&message);
        if (goodbye != nullptr && goodbye->rank == kNoRank) return;
        items_.put(std::move(message));
      }
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
      // Without this thread nobody would ever hear of this pool again.
      fmt::print(stderr, "cp-pool-worker: rank 0: the protocol thread failed: {}\n", e.what());
      _exit(1);
    }
  }

  Mailroom<Item> items_;
  StorePorts ports_;
  Coordinator coordinator_;
  Mail collected_mail_;
  Mail stop_mail_;
  RequestReader reader_;
  std::jthread collector_;
  std::jthread protocol_;
};

RankZero::RankZero(const protocol::RankEnvironment& environment, const protocol::ReadyEvent& ready,
                   FaultInjector faults, int stdin_fd, int stdout_fd)
    : threads_(std::make_unique<Threads>(environment, ready, std::move(faults), stdin_fd, stdout_fd)) {}

RankZero::~RankZero() {
  threads_->wait();
}

bool RankZero::wait() {
  return threads_->wait();
}

}  // namespace cp_pool
