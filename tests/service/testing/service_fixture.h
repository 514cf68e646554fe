// The real `cp-pool serve` with a runtime folder of a test's own, in which no other service is.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "driver/cli/testing/command_line_fixture.h"
#include "driver/service/socket.h"
#include "driver/testing/scoped_variable.h"
#include "tests/service/testing/raw_client.h"

namespace cp_pool::service_test {

using nlohmann::json;
using test::Finished;
using test::Program;
using test::Words;

inline const std::string kFakeWorker = CP_POOL_FAKE_WORKER;

// For what has no event: looks again until it is so. It is a failure if that takes longer than it ever could.
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

// Memory of the process alone, of which it may have freed some.
inline std::int64_t memory_kib_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string word; file >> word;) {
    std::int64_t kib = 0;
    if (word == "RssAnon:" && file >> kib) return kib;
  }
  throw std::runtime_error("no RssAnon");
}

// A service that listens.
class StartedService {
 public:
  explicit StartedService(const Words& options = {}, const std::string& name = "default")
      : program_(words(options, name)) {
    const auto path = service::socket_path(name);
    wait_until("the service listens", [&] {
      const UniqueFd connection = service::connect_to(path);
      return static_cast<bool>(connection);
    });
  }
  [[nodiscard]] pid_t pid() const { return program_.pid(); }
  void signal(int number) const { program_.signal(number); }
  Finished wait() { return program_.wait(); }

 private:
  static Words words(const Words& options, const std::string& name) {
    Words out{test::kProgram, "serve", "--name", name};
    out.insert(out.end(), options.begin(), options.end());
    return out;
  }
  Program program_;
};

class Service : public test::CommandLine {
 protected:
  // A stream of cases of the fake worker, as a file.
  [[nodiscard]] std::string stream_of(const std::vector<std::string>& models, int cp_size = 1) const {
    std::string text;
    for (const std::string& model : models)
      text += json{{"id", model}, {"case", fake_case(model, cp_size)}}.dump() + '\n';
    const std::string file = path("stream-" + std::to_string(++streams_) + ".jsonl");
    test::write_file(file, text);
    return file;
  }
  // cp-pool submit of such a stream.
  [[nodiscard]] Words submit_words(const Words& more = {}) const {
    Words out{test::kProgram, "submit", "-", "--worker", kFakeWorker, "--grace", "200ms"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  Finished submit(const std::vector<std::string>& models, const Words& more = {}, int cp_size = 1) {
    return Program{submit_words(more), {.in = stream_of(models, cp_size), .out = ""}}.wait();
  }

 private:
  mutable int streams_ = 0;
};

}  // namespace cp_pool::service_test
