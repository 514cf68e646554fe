// A client of a service that says whatever a test wants, right or wrong.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "driver/process/unique_fd.h"

namespace cp_pool::service_test {

// A case that tells the fake worker what to do (tests/driver/fake_worker/main.cpp).
nlohmann::json fake_case(const std::string& model, int cp_size = 1);

class RawClient {
 public:
  // Connects to the service of this name, and says nothing. Throws std::runtime_error if it is not there.
  explicit RawClient(const std::string& name = "default");
  // Over the two ends of other channels.
  RawClient(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {}
  // One that has said hello, and was welcomed.
  static RawClient greeted(const std::string& name = "default");

  // What it says. Bytes that nobody takes any more are lost.
  void say(const nlohmann::json& message);
  void say_bytes(std::string_view bytes);
  void hello();
  // Opens a run on the fake worker, with more fields, or others.
  void open(const std::string& run, const nlohmann::json& more = {});
  void submit(const std::string& run, const std::string& model, const nlohmann::json& more = {}, int cp_size = 1);
  void close_run(const std::string& run);
  // It says nothing more, and still listens.
  void stop_talking();
  // It is gone, as a client that is killed.
  void vanish();

  // The next reply; nullopt: the connection was closed. Throws std::runtime_error if there is none for very long.
  std::optional<nlohmann::json> reply();
  // The next reply that is so; throws if the connection is closed before.
  nlohmann::json reply_where(const std::function<bool(const nlohmann::json&)>& is_so);
  nlohmann::json reply_named(const std::string& name);
  // The next event of this type.
  nlohmann::json event(const std::string& type);
  // All events up to the end of the run.
  std::vector<nlohmann::json> events_of(const std::string& run);
  // By the ID of the case, in the order of the events.
  std::vector<std::string> outcomes_of(const std::string& run);
  nlohmann::json status();
  // Everything until the service closes the connection.
  std::vector<nlohmann::json> rest();

  [[nodiscard]] int fd() const { return in_.get(); }

 private:
  std::optional<std::string> line();

  UniqueFd in_;
  UniqueFd out_;  // none: in_ is both
  std::string received_;
};

// "ID: OUTCOME" of each case_finished, in order.
std::vector<std::string> outcomes_in(const std::vector<nlohmann::json>& events);

}  // namespace cp_pool::service_test
