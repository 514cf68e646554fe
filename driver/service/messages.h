// The messages between a client of `cp-pool serve` and the service: one JSON object a line, over a Unix socket or over
// stdin and stdout. docs/service.md describes them. The fields of a message are defined in its fields() alone.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/fields.h"
#include "driver/core/events.h"
#include "driver/core/rank_environment.h"
#include "driver/core/run.h"

namespace cp_pool::service {

// Version of these messages; it changes when a field changes its meaning or is removed.
inline constexpr int kVersion = 1;

// --- Messages of a client: "request" is their name ---

// The first line of a connection.
struct Hello {
  int protocol = 0;
  std::string version;  // version of the client's cp-pool; empty: the client is another program
  std::string client;   // name of the client in the status: "cp-pool submit"

  static constexpr const char* kName = "hello";
  static constexpr auto fields() {
    return FieldList{required<&Hello::protocol>(), optional<&Hello::version, &Hello::client>()};
  }
};

// Begins a run: cases that share a worker, deadlines and an event stream. Fields that are left out have the defaults of
// `cp-pool run`; an empty worker_command is the worker of the service's installation.
struct Open : RunSettings {
  std::string run;     // the client's name for the run, used in all messages about it
  std::string folder;  // the ranks' working directory; empty: that of the service
  // NAME=VALUE; replaces the variables that matter to ranks.
  std::optional<std::vector<std::string>> environment;
  std::string title;  // title in run_started
  std::string size;

  static constexpr const char* kName = "open";
  static constexpr auto fields() {
    return FieldList{required<&Open::run>(), optional<&Open::folder>(), sparse<&Open::environment>(),
                     optional<&Open::title, &Open::size>()} +
           RunSettings::fields();
  }
};

// Adds a case to an open run. An empty ID is made of the fields of the case. A case that is to be skipped is not sent
// to a worker.
struct Submit : Item {
  std::string of_run;

  static constexpr const char* kName = "submit";
  static constexpr auto fields() {
    return FieldList{field("run", &Submit::of_run, Presence::required),
                     field("case", &Submit::payload, Presence::required),
                     optional<&Submit::id>(),
                     sparse<&Submit::number>(),
                     optional<&Submit::rerun>(),
                     field("repetition", &Submit::run),
                     field("repetitions", &Submit::runs),
                     field("timeout_ms", &Submit::timeout, Presence::sparse),
                     sparse<&Submit::retries, &Submit::expected, &Submit::ranks>()};
  }
};

// No more cases of the run follow. The run ends when all its cases have ended.
struct Close {
  std::string run;

  static constexpr const char* kName = "close";
  static constexpr auto fields() { return FieldList{required<&Close::run>()}; }
};

// Ends the run: waiting cases end as not_run, running ones as cancelled.
struct Cancel {
  std::string run;
  bool kill = false;  // ranks are killed without grace

  static constexpr const char* kName = "cancel";
  static constexpr auto fields() { return FieldList{required<&Cancel::run>(), optional<&Cancel::kill>()}; }
};

struct AskStatus {
  static constexpr const char* kName = "status";
  static constexpr auto fields() { return FieldList{}; }
};

// Ends the service: running cases are finished, waiting ones are not run, and no more clients are accepted.
struct Stop {
  static constexpr const char* kName = "stop";
  static constexpr auto fields() { return FieldList{}; }
};

using Request = std::variant<Hello, Open, Submit, Close, Cancel, AskStatus, Stop>;

// The environment of a client: the variables that change what a worker computes or whether it starts
// (rank_environment.h). All other variables are the service's own, so that clients in different terminals share pools.

// Throws std::invalid_argument, whose what() begins with `where`, for an entry that is no NAME=VALUE.
void expect_variable(const char* where, const std::string& entry);
// Returns the variables of `environment` that matter to ranks, as "NAME=VALUE".
std::vector<std::string> rank_variables(const Variables& environment);
// Returns `base` with the variables that matter to ranks replaced by those of `entries` ("NAME=VALUE"), sorted by name.
// Throws like expect_variable.
Variables with_rank_variables(Variables base, const std::vector<std::string>& entries);

// Both throw protocol::ProtocolError, with field and value, for a number that is out of range.
void expect_valid(const Open& open);
void expect_valid(const Submit& submit);

// --- Messages of the service: "reply" is their name ---

// The answer to hello.
struct Welcome {
  int protocol = kVersion;
  std::string version;
  int pid = 0;

  static constexpr const char* kName = "welcome";
  static constexpr auto fields() {
    return FieldList{required<&Welcome::protocol>(), optional<&Welcome::version, &Welcome::pid>()};
  }
};

// An event of a run, as docs/events.md describes it. The last event of a run is run_finished.
struct Happened {
  std::string run;
  nlohmann::json event;

  static constexpr const char* kName = "event";
  static constexpr auto fields() { return FieldList{required<&Happened::run, &Happened::event>()}; }
};

// A request was refused and had no effect. `message` says why, in a sentence.
struct Refused {
  std::string run = {};  // run of the request; empty: none
  std::string message;
  std::optional<std::size_t> number = {};  // number of the refused submit
  bool fatal = false;                      // the service closes the connection

  static constexpr const char* kName = "refused";
  static constexpr auto fields() {
    return FieldList{optional<&Refused::run>(), required<&Refused::message>(), sparse<&Refused::number>(),
                     optional<&Refused::fatal>()};
  }
};

struct PoolStatus {
  PoolId pool;
  std::string worker;  // command line of the worker
  std::string folder;
  int world_size = 0;
  std::string state;  // the name of a PoolState
  double for_ms = 0;  // time since it entered this state
  int cases = 0;      // number of cases that it has run
  std::vector<int> slots;
  std::vector<int> pids;  // process IDs by rank
  std::string runs;       // ID of the case that it runs
  int client = 0;         // process ID of the client of that case

  static constexpr auto fields() {
    return FieldList{
        optional<&PoolStatus::pool, &PoolStatus::worker, &PoolStatus::folder, &PoolStatus::world_size,
                 &PoolStatus::state, &PoolStatus::for_ms, &PoolStatus::cases, &PoolStatus::slots, &PoolStatus::pids>(),
        sparse<&PoolStatus::runs, &PoolStatus::client>()};
  }
};

struct DeviceStatus {
  std::string device;
  int slots = 0;  // number of ranks that may work at once
  int held = 0;   // number of slots that pools hold
  std::vector<std::string> gpus;

  static constexpr auto fields() {
    return FieldList{optional<&DeviceStatus::device, &DeviceStatus::slots, &DeviceStatus::held>(),
                     sparse<&DeviceStatus::gpus>()};
  }
};

struct ClientStatus {
  int pid = 0;
  std::string client;
  double for_ms = 0;  // time since it connected
  std::size_t runs = 0;
  std::size_t unfinished = 0;  // cases without an outcome
  std::size_t finished = 0;
  bool held = false;  // it does not read its answers, so no more of its cases begin

  static constexpr auto fields() {
    return FieldList{optional<&ClientStatus::pid, &ClientStatus::client, &ClientStatus::for_ms, &ClientStatus::runs,
                              &ClientStatus::unfinished, &ClientStatus::finished, &ClientStatus::held>()};
  }
};

struct Status {
  int pid = 0;
  std::string version;
  double for_ms = 0;  // time since the service started
  bool stopping = false;
  OutcomeCounts counts{};  // outcomes of all cases since the service started
  std::vector<DeviceStatus> devices;
  std::vector<PoolStatus> pools;
  std::vector<ClientStatus> clients;

  static constexpr const char* kName = "status";
  static constexpr auto fields() {
    return FieldList{optional<&Status::pid, &Status::version, &Status::for_ms, &Status::stopping, &Status::counts,
                              &Status::devices, &Status::pools, &Status::clients>()};
  }
};

// The service begins to stop. It closes the connection when the client's runs have ended.
struct Stopping {
  std::string why;

  static constexpr const char* kName = "stopping";
  static constexpr auto fields() { return FieldList{optional<&Stopping::why>()}; }
};

using Reply = std::variant<Welcome, Happened, Refused, Status, Stopping>;

// Return the message as a line, with its newline.
std::string line_of(const Request& request);
std::string line_of(const Reply& reply);

// Both functions throw protocol::ProtocolError or CaseError, which name field and value.
Request read_request(const nlohmann::json& line);
// Returns nullopt for a reply that this version does not know.
std::optional<Reply> read_reply(const nlohmann::json& line);

}  // namespace cp_pool::service
