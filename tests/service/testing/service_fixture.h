// The real `cp-pool serve`, with a runtime folder of the test, in which there is no other service.
#pragma once

#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "driver/cli/testing/command_line_fixture.h"
#include "driver/service/socket.h"
#include "tests/service/testing/raw_client.h"

namespace cp_pool::service_test {

using nlohmann::json;
using namespace test;

inline const std::string kFakeWorker = CP_POOL_FAKE_WORKER;

// Waits for a condition that no event reports, by asking again and again. Throws after two minutes, which no working
// machine needs.
inline void wait_until(const char* what, const std::function<bool()>& is_so) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > limit) throw std::runtime_error(std::string("never: ") + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

inline std::size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// The anonymous resident memory of the process in KiB. It may include memory that the process has freed. With
// sanitizers, which keep all of that, 0: there is nothing to compare.
inline std::int64_t memory_kib_of(pid_t pid) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (pid > 0) return 0;
#endif
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == "RssAnon:" && file >> kib) return kib;
  }
  throw std::runtime_error("no RssAnon");
}

// A started service, which listens when the constructor returns. `first`, if given, keeps the connection that found
// this out, so that somebody is connected from the first moment.
class StartedService {
 public:
  explicit StartedService(const Words& options = {}, const std::string& name = "default", UniqueFd* first = nullptr)
      : program_(with({kProgram, "serve", "--name", name}, options)) {
    const auto path = service::socket_path(name);
    wait_until("the service listens", [&] {
      UniqueFd connection = service::connect_to(path);
      const bool listens = static_cast<bool>(connection);
      if (first != nullptr) *first = std::move(connection);
      return listens;
    });
  }
  [[nodiscard]] pid_t pid() const { return program_.pid(); }
  void signal(int number) const { program_.signal(number); }
  Finished wait() { return program_.wait(); }

 private:
  Program program_;
};

class Service : public CommandLine {
 protected:
  // Writes a stream of cases for the fake worker to a file. Returns its path.
  [[nodiscard]] std::string stream_of(const std::vector<std::string>& models, int cp_size = 1) const {
    std::string text;
    for (const std::string& model : models)
      text += json{{"id", model}, {"case", fake_case(model, cp_size)}}.dump() + '\n';
    const std::string file = path("stream-" + std::to_string(++streams_) + ".jsonl");
    write_file(file, text);
    return file;
  }
  // The words of a cp-pool submit that reads such a stream from stdin.
  [[nodiscard]] Words submit_words(const Words& more = {}) const {
    return with({kProgram, "submit", "-", "--worker", kFakeWorker, "--grace", "200ms"}, more);
  }
  Finished submit(const std::vector<std::string>& models, const Words& more = {}, int cp_size = 1) {
    return run_to_end(submit_words(more), {.in = stream_of(models, cp_size)});
  }

 private:
  mutable int streams_ = 0;
};

}  // namespace cp_pool::service_test
