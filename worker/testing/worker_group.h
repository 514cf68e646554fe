// Starts the real worker's ranks as the driver does, for tests.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <vector>

#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"

namespace cp_pool::test {

class WorkerGroup {
 public:
  struct Config {
    int ranks = 2;
    // NOLINTBEGIN(readability-redundant-member-init): designated initializers leave them out
    std::vector<std::string> arguments{};
    std::map<std::string, std::string> environment{};  // in addition to the variables that a rank needs
    // NOLINTEND(readability-redundant-member-init)
    std::string binary = CP_POOL_WORKER_BINARY;
    bool as_open_mpi = false;  // started as by mpirun: with its rank variables, and with no listener on MASTER_PORT
  };
  explicit WorkerGroup(const Config& config);
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  ~WorkerGroup();  // kills ranks that are still running

  void send_line(const std::string& line);
  void send(const protocol::Request& request) { send_line(protocol::encode(request)); }
  void close_stdin();
  void kill(int rank, int signal);
  void stop(int rank);  // sends SIGSTOP; returns when the rank has stopped

  // Returns the next event of rank 0; nullopt at end of file or after kPatience. Chatter is collected.
  std::optional<protocol::Event> next_event();
  // Returns the next event of this type; other events are dropped. Throws std::runtime_error if none comes.
  template <typename Event>
  Event next() {
    while (auto event = next_event()) {
      if (auto* wanted = std::get_if<Event>(&*event)) return *wanted;
    }
    throw std::runtime_error(std::string("no event came: ") + Event::kName);
  }
  // Runs a small case under this ID. Throws std::runtime_error if there is no result.
  protocol::ResultEvent run(const std::string& id, const nlohmann::json& changes = {}, std::int64_t timeout_ms = 20000,
                            bool reference_cache = true);
  void start_run(const std::string& id, const nlohmann::json& changes = {}, std::int64_t timeout_ms = 20000,
                 bool reference_cache = true);

  // Returns the exit statuses of all ranks, as "exit 0" or "signal 9"; nullopt if a rank still runs after `limit`.
  std::optional<std::vector<std::string>> wait_all(std::chrono::milliseconds limit);

  std::string wait_for_exit(int rank);  // waits without limit

  [[nodiscard]] std::string read_stderr(int rank) const;
  // Returns whether the rank writes this text within kPatience.
  [[nodiscard]] bool wait_for_stderr(int rank, const std::string& text) const;
  // Does the same, and sends the signal again and again meanwhile.
  [[nodiscard]] bool ask_until_stderr_has(int rank, int signal, const std::string& text);
  // Returns the last line of stdout if it has no newline.
  [[nodiscard]] std::string rest_of_stdout();
  [[nodiscard]] const std::vector<std::string>& chatter() const { return chatter_; }
  [[nodiscard]] std::int64_t last_seq() const { return seq_; }
  [[nodiscard]] pid_t pid(int rank) const { return pids_.at(static_cast<std::size_t>(rank)); }

 private:
  static constexpr std::chrono::seconds kPatience{30};

  int ranks_;
  int stdin_ = -1;
  int stdout_ = -1;
  std::vector<pid_t> pids_;
  std::vector<std::string> stderr_files_;
  std::vector<std::optional<std::string>> statuses_;
  protocol::LineFramer framer_{protocol::LineFramer::Stream::responses};
  std::deque<protocol::Event> events_;
  std::vector<std::string> chatter_;
  std::int64_t seq_ = 0;
};

// Returns a case that takes milliseconds.
nlohmann::json small_case(int cp_size);

}  // namespace cp_pool::test
