#include "worker/rank_zero.h"

#include <array>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "worker/coordinator.h"
#include "worker/data_plane.h"
#include "worker/protocol/line_framer.h"

namespace cp_pool {
namespace {

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

struct EndOfInput {};
struct DeadlinePassed {};
using Item = std::variant<protocol::Request, protocol::ProtocolError, EndOfInput, RankMessage, DeadlinePassed>;

Item item_of(const protocol::Line& line) {
  if (line.kind == protocol::Line::Kind::over_long) {
    return protocol::ProtocolError(fmt::format("a request longer than {} bytes", protocol::kMaxLineBytes));
  }
  try {
    return protocol::parse_request(line.text);
  } catch (const protocol::ProtocolError& e) {
    return e;
  }
}

Item item_of(const Bytes& message) {
  try {
    return decode<RankMessage>(message);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cp-pool-worker: rank 0: {}\n", e.what());
    return EndOfInput{};
  }
}

// Runs the coordinator on whichever thread has an item for it, because to wake another thread costs more than to handle
// an item. A thread that comes while another is at work leaves its item to that one, and does not wait.
class RankZero final : Coordinator::Ports {
 public:
  RankZero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdout_fd)
      : server_(server), faults_(std::move(faults)), stdout_fd_(stdout_fd), coordinator_(*this, ready) {}

  // May be called from any thread. Items are handled in the order of the calls. An error ends the process.
  void take(Item item) {
    std::unique_lock lock(mutex_);
    items_.push_back(std::move(item));
    if (finished_ || std::exchange(busy_, true)) return;
    while (!items_.empty() && !coordinator_.finished()) {
      const Item next = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      dispatch(next);
      lock.lock();
    }
    busy_ = false;
    finished_ = coordinator_.finished();
    const auto deadline = coordinator_.next_deadline();
    if (std::exchange(deadline_, deadline) != deadline || finished_) changed_.notify_one();
  }

  // Keeps the coordinator's deadlines until it has finished. Returns whether every rank has stopped in time.
  bool serve() {
    std::unique_lock lock(mutex_);
    while (!finished_) {
      if (!deadline_) {
        changed_.wait(lock);
      } else if (const auto until = *deadline_; changed_.wait_until(lock, until) == std::cv_status::timeout) {
        deadline_.reset();  // until the coordinator has been told
        lock.unlock();
        take(DeadlinePassed{});
        lock.lock();
      }
    }
    return coordinator_.stopped_cleanly();
  }

 private:
  void emit(const protocol::Event& event) override {
    const bool breaks = std::holds_alternative<protocol::ResultEvent>(event) && faults_.is_armed(Fault::Phase::result);
    write_response(stdout_fd_, event,
                   breaks ? [this] { faults_.reach(Fault::Phase::result); } : std::function<void()>{});
  }
  void command(const ComputeCommand& command) override {
    if (const auto* run = std::get_if<RunCommand>(&command)) faults_.start_case(run->id, run->seq);
    server_.to_compute(command);
  }
  void watch(const ControlCommand& command) override { server_.to_control_threads(command); }
  Coordinator::Clock::time_point now() override { return Coordinator::Clock::now(); }
  void forget_generation(int generation) override { server_.delete_keys(generation_prefix(generation)); }

  void dispatch(const Item& item) {
    try {
      if (const auto* request = std::get_if<protocol::Request>(&item)) coordinator_.on_request(*request);
      if (const auto* error = std::get_if<protocol::ProtocolError>(&item)) coordinator_.on_bad_request(*error);
      if (const auto* message = std::get_if<RankMessage>(&item)) coordinator_.on_rank_message(*message);
      if (std::holds_alternative<EndOfInput>(item)) coordinator_.on_end_of_input();
      if (std::holds_alternative<DeadlinePassed>(item)) coordinator_.on_time();
    } catch (const std::exception& e) {
      fmt::print(stderr, "cp-pool-worker: rank 0: the protocol failed: {}\n", e.what());
      _exit(1);
    }
  }

  // It guards the members until server_. Those from there on are used only by the thread that has set busy_.
  std::mutex mutex_;
  std::condition_variable changed_;  // finished_ or deadline_
  std::deque<Item> items_;
  bool busy_ = false;  // a thread handles items
  bool finished_ = false;
  std::optional<Coordinator::Clock::time_point> deadline_;
  MessageServer& server_;
  FaultInjector faults_;
  int stdout_fd_;
  Coordinator coordinator_;
};

// Hands over the driver's requests, then the end of input, also when reading fails. Runs on a thread of its own, so
// that requests arrive during a case; the thread ends with the process at the latest. fd is not owned.
void read_requests(int fd, RankZero& rank_zero) {
  protocol::LineFramer framer(protocol::LineFramer::Stream::requests);
  std::array<char, std::size_t{64} << 10U> buffer;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};  // another process may have made the input non-blocking
    poll(&ready, 1, -1);
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) break;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    for (const protocol::Line& line : framer.feed(bytes)) rank_zero.take(item_of(line));
  }
  rank_zero.take(EndOfInput{});
}

}  // namespace

bool serve_rank_zero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd,
                     int stdout_fd) {
  const auto rank_zero = std::make_shared<RankZero>(server, ready, std::move(faults), stdout_fd);
  std::thread([=] { read_requests(stdin_fd, *rank_zero); }).detach();
  server.on_rank0([=](const Bytes& message) { rank_zero->take(item_of(message)); });
  const bool clean = rank_zero->serve();
  server.on_rank0(nullptr);
  return clean;
}

void write_response(int fd, const protocol::Event& event, const std::function<void()>& half_way) {
  std::string text = protocol::format_response(event);
  const auto* const result = std::get_if<protocol::ResultEvent>(&event);
  if (text.size() > protocol::kMaxLineBytes && result != nullptr) {
    protocol::ResultEvent shorter = *result;
    shorter.checks.clear();
    shorter.reason += fmt::format(" ({} checks left out: the result had {} bytes)", result->checks.size(), text.size());
    text = protocol::format_response(shorter);
  }
  if (!half_way) return write_all(fd, text);
  const std::size_t half = text.size() / 2;
  write_all(fd, std::string_view{text}.substr(0, half));
  half_way();
  write_all(fd, std::string_view{text}.substr(half));
}

}  // namespace cp_pool
