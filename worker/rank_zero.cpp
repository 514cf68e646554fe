#include "worker/rank_zero.h"

#include <array>
#include <cerrno>
#include <chrono>
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

// A queue between threads of one process.
template <typename Item>
class ThreadQueue {
 public:
  using Clock = std::chrono::steady_clock;

  void put(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    filled_.notify_one();
  }

  // Returns the next item; nullopt at the deadline. Waits without limit if `deadline` is not set.
  std::optional<Item> take(std::optional<Clock::time_point> deadline) {
    std::unique_lock lock(mutex_);
    const auto filled = [this] { return !items_.empty(); };
    if (!deadline) {
      filled_.wait(lock, filled);
    } else if (!filled_.wait_until(lock, *deadline, filled)) {
      return std::nullopt;
    }
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Item> items_;
};

struct EndOfInput {};
using Item = std::variant<protocol::Request, protocol::ProtocolError, EndOfInput, RankMessage>;

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

// Puts the driver's requests into the queue, then the end of input, also when reading fails. Runs on a thread of its
// own, so that requests arrive during a case; the thread ends with the process at the latest. fd is not owned.
void read_requests(int fd, const std::shared_ptr<ThreadQueue<Item>>& items) {
  protocol::LineFramer framer(protocol::LineFramer::Stream::requests);
  std::array<char, std::size_t{64} << 10U> buffer;
  for (;;) {
    pollfd ready{fd, POLLIN, 0};  // another process may have made the input non-blocking
    poll(&ready, 1, -1);
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) break;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    for (const protocol::Line& line : framer.feed(bytes)) items->put(item_of(line));
  }
  items->put(EndOfInput{});
}

class ServerPorts final : public Coordinator::Ports {
 public:
  ServerPorts(MessageServer& server, FaultInjector faults, int stdout_fd)
      : server_(server), faults_(std::move(faults)), stdout_fd_(stdout_fd) {}

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

 private:
  MessageServer& server_;
  FaultInjector faults_;
  int stdout_fd_;
};

void dispatch(Coordinator& coordinator, const Item& item) {
  if (const auto* request = std::get_if<protocol::Request>(&item)) coordinator.on_request(*request);
  if (const auto* error = std::get_if<protocol::ProtocolError>(&item)) coordinator.on_bad_request(*error);
  if (const auto* message = std::get_if<RankMessage>(&item)) coordinator.on_rank_message(*message);
  if (std::holds_alternative<EndOfInput>(item)) coordinator.on_end_of_input();
}

Item item_of(const Bytes& message) {
  try {
    return decode<RankMessage>(message);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cp-pool-worker: rank 0: {}\n", e.what());
    return EndOfInput{};
  }
}

}  // namespace

bool serve_rank_zero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd,
                     int stdout_fd) {
  try {
    const auto items = std::make_shared<ThreadQueue<Item>>();
    ServerPorts ports(server, std::move(faults), stdout_fd);
    Coordinator coordinator(ports, ready);
    std::thread([=] { read_requests(stdin_fd, items); }).detach();
    server.on_rank0([&items](const Bytes& message) { items->put(item_of(message)); });
    while (!coordinator.finished()) {
      if (const std::optional<Item> item = items->take(coordinator.next_deadline())) {
        dispatch(coordinator, *item);
      } else {
        coordinator.on_time();
      }
    }
    server.on_rank0(nullptr);
    return coordinator.stopped_cleanly();
  } catch (const std::exception& e) {
    fmt::print(stderr, "cp-pool-worker: rank 0: the protocol thread failed: {}\n", e.what());
    _exit(1);
  }
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
