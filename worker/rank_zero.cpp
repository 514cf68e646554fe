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

// Reads requests from the driver on a thread of its own, so that they arrive during a case.
class RequestReader {
 public:
  struct Handlers {  // called on the reading thread
    std::function<void(const protocol::Request&)> request;
    std::function<void(const protocol::ProtocolError&)> bad_request;
    std::function<void()> end_of_input;  // also when reading fails
  };
  RequestReader(int fd, Handlers handlers);  // fd is not owned
  ~RequestReader();                          // stops reading

 private:
  void serve();
  void handle(const protocol::Line& line);

  int fd_;
  UniqueFd wake_fd_;
  Handlers handlers_;
  std::jthread thread_;
};

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;

RequestReader::RequestReader(int fd, Handlers handlers)
    : fd_(fd), wake_fd_(eventfd(0, EFD_CLOEXEC)), handlers_(std::move(handlers)) {
  if (!wake_fd_) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::jthread([this] { serve(); });
}

RequestReader::~RequestReader() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
}

void RequestReader::serve() {
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
    for (const protocol::Line& line : framer.feed(bytes)) handle(line);
  }
  handlers_.end_of_input();
}

void RequestReader::handle(const protocol::Line& line) {
  try {
    if (line.kind == protocol::Line::Kind::over_long) {
      throw protocol::ProtocolError(fmt::format("a request longer than {} bytes", protocol::kMaxLineBytes));
    }
    handlers_.request(protocol::parse_request(line.text));
  } catch (const protocol::ProtocolError& e) {
    handlers_.bad_request(e);
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

class ServerPorts final : public Coordinator::Ports {
 public:
  ServerPorts(MessageServer& server, FaultInjector faults, int stdout_fd)
      : server_(server), faults_(std::move(faults)), writer_(stdout_fd) {}

  void emit(const protocol::Event& event) override {
    const bool breaks = std::holds_alternative<protocol::ResultEvent>(event) && faults_.is_armed(Fault::Phase::result);
    writer_.write(event, breaks ? [this] { faults_.reach(Fault::Phase::result); } : std::function<void()>{});
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
  Threads(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd, int stdout_fd)
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

  ThreadQueue<Item> items_;
  MessageServer& server_;
  ServerPorts ports_;
  Coordinator coordinator_;
  RequestReader reader_;
  std::jthread protocol_;
};

RankZero::RankZero(MessageServer& server, const protocol::ReadyEvent& ready, FaultInjector faults, int stdin_fd,
                   int stdout_fd)
    : threads_(std::make_unique<Threads>(server, ready, std::move(faults), stdin_fd, stdout_fd)) {}

RankZero::~RankZero() {
  threads_->wait();
}

bool RankZero::wait() {
  return threads_->wait();
}

}  // namespace cp_pool
