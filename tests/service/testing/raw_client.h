// A client of a service that sends whatever a test wants, valid or not.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/unique_fd.h"

namespace cp_pool::service_test {

// A case that tells the fake worker what to do (tests/driver/fake_worker/main.cpp).
nlohmann::json fake_case(const std::string& model, int cp_size = 1);

class RawClient {
 public:
  // Connects to the service of this name and sends nothing. Throws std::runtime_error if there is no such service.
  explicit RawClient(const std::string& name = "default");
  // A client that reads from `in` and writes to `out`, which are no sockets of a service.
  RawClient(UniqueFd in, UniqueFd out) : in_(std::move(in)), out_(std::move(out)) {}
  // A client that has said hello and was welcomed.
  static RawClient greeted(const std::string& name = "default");

  // Sends a message, or bytes. What nobody reads any more is lost.
  void say(const nlohmann::json& message);
  void say_bytes(std::string_view bytes);
  void hello();
  // Opens a run on the fake worker. `more` adds fields to the request or replaces them.
  void open(const std::string& run, const nlohmann::json& more = {});
  void submit(const std::string& run, const std::string& model, const nlohmann::json& more = {}, int cp_size = 1);
  void close_run(const std::string& run);
  // Runs a case as a run of its own. Returns its events.
  std::vector<nlohmann::json> run(const std::string& model, const nlohmann::json& more = {}, int cp_size = 1);
  // Ends its requests, and goes on reading replies.
  void stop_talking();
  // Closes the connection, as if the client had been killed.
  void vanish();

  // The next reply; nullopt if the connection was closed. Throws std::runtime_error if there is none for two minutes.
  std::optional<nlohmann::json> reply();
  // The next reply for which this is true. Throws std::runtime_error if the connection is closed before.
  nlohmann::json reply_where(const std::function<bool(const nlohmann::json&)>& is_so);
  nlohmann::json reply_named(const std::string& name);
  // The next event of this type.
  nlohmann::json event(const std::string& type);
  // All events up to the end of the run.
  std::vector<nlohmann::json> events_of(const std::string& run);
  // "ID: OUTCOME" of each case of the run, in the order of the events.
  std::vector<std::string> outcomes_of(const std::string& run);
  nlohmann::json status();
  // All replies until the service closes the connection, and the events among them.
  std::vector<nlohmann::json> rest();
  std::vector<nlohmann::json> rest_of_events();

  [[nodiscard]] int fd() const { return in_.get(); }

 private:
  std::optional<std::string> line();

  UniqueFd in_;
  UniqueFd out_;  // empty if in_ is a socket for both directions
  std::string received_;
};

// "ID: OUTCOME" of each case_finished event, in order.
std::vector<std::string> outcomes_in(const std::vector<nlohmann::json>& events);

}  // namespace cp_pool::service_test
