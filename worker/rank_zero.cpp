#include "worker/rank_zero.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "worker/coordinator.h"
#include "worker/data_plane.h"
#include "worker/protocol/line_framer.h"
#include "worker/response_writer.h"

namespace cp_pool {
namespace {

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

// Reads requests from the driver on a thread of its own, so that they arrive during a case.
class RequestReader {
 public:
  // fd is not owned. The end of input is put into the queue, too, also when reading fails.
  RequestReader(int fd, ThreadQueue<Item>& items) : fd_(fd), items_(items), wake_fd_(eventfd(0, EFD_CLOEXEC)) {
    if (!wake_fd_) throw std::system_error(errno, std::generic_category(), "eventfd");
    thread_ = std::jthread([this] { serve(); });
  }
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;
  ~RequestReader() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_.get(), &one, sizeof one);
  }

 private:
  void serve() {
    constexpr std::size_t kReadBytes = std::size_t{64} << 10U;
    protocol::LineFramer framer(protocol::LineFramer::Stream::requests);
    std::array<char, kReadBytes> buffer;
    for (;;) {
      std::array<pollfd, 2> ready{{{fd_, POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}}};
      if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) break;
      if (ready[1].revents != 0) return;
      if (ready[0].revents == 0) continue;
      const ssize_t got = read(fd_, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
      for (const protocol::Line& line : framer.feed(bytes)) items_.put(item_of(line));
    }
    items_.put(EndOfInput{});
  }

  static Item item_of(const protocol::Line& line) {
    if (line.kind == protocol::Line::Kind::over_long) {
      return protocol::ProtocolError(fmt::format("a request longer than {} bytes", protocol::kMaxLineBytes));
    }
    try {
      return protocol::parse_request(line.text);
    } catch (const protocol::ProtocolError& e) {
      return e;
    }
  }

  int fd_;
  ThreadQueue<Item>& items_;
  UniqueFd wake_fd_;
  std::jthread thread_;
};

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
    if (const auto* run = std::get_if<RunCommand>(&command)) faults_.start_case(run->request.id, run->request.seq);
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
    ThreadQueue<Item> items;
    ServerPorts ports(server, std::move(faults), stdout_fd);
    Coordinator coordinator(ports, ready);
    const RequestReader reader(stdin_fd, items);
    server.on_rank0([&items](const Bytes& message) { items.put(item_of(message)); });
    while (!coordinator.finished()) {
      if (const std::optional<Item> item = items.take(coordinator.next_deadline())) {
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

}  // namespace cp_pool
