// What a client of `cp-pool serve` and the service say to each other: a JSON object a line each, over a Unix socket or
// over stdin and stdout. docs/service.md describes them; which fields a message has is said in its fields() alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "cases/case.h"
#include "cases/fields.h"
#include "driver/events.h"
#include "driver/run.h"

namespace cp_pool::service {

inline constexpr int kVersion = 1;  // of these messages; changes when a field changes its meaning or goes away

// --- What a client says: "request" is its name ---

// The first line of a connection.
struct Hello {
  int protocol = 0;
  std::string version;  // of the client's cp-pool; empty: it is another program
  std::string client;   // what the status calls it: "cp-pool submit"

  static constexpr const char* kName = "hello";
  static constexpr auto fields() {
    return std::tuple{field("protocol", &Hello::protocol, Presence::required), field("version", &Hello::version),
                      field("client", &Hello::client)};
  }
};

// Begins a run: cases that share a worker, deadlines and an event stream. What is left out is as `cp-pool run` has it.
struct Open {
  std::string run;                       // the client's name for it, in each message of and about it
  std::vector<std::string> worker;       // argv; empty: the worker of the service's installation
  std::vector<std::string> fork_server;  // argv of what ranks are forked from; empty: each is started by itself
  std::string device = "cpu";            // cpu | cuda
  bool share_gpus = true;
  std::string folder;                                   // the ranks' working directory; empty: that of the service
  std::optional<std::vector<std::string>> environment;  // NAME=VALUE; replaces what matters of it (environment.h)
  std::string title;                                    // of run_started
  std::string size;
  double timeout_ms = 90000;
  double start_timeout_ms = 60000;
  bool start_timeout_grows = false;
  double grace_ms = 5000;
  double global_timeout_ms = 0;
  double slow_after_ms = 10000;
  int max_consecutive_timeouts = 3;
  int max_failures = 0;
  int retries = 0;                    // of a case, by the driver of the service
  std::vector<std::string> retry_on;  // outcomes; empty: as `cp-pool run` has it
  bool flaky_fails = false;
  bool compare_runs = false;
  bool no_skip = false;
  bool expect_judged = false;
  std::optional<double> bound_factor;
  std::optional<std::string> dump_dir;
  bool reference_cache = true;
  bool diagnosis = true;
  double diagnosis_time_ms = 0;

  static constexpr const char* kName = "open";
  static constexpr auto fields() {
    return std::tuple{field("run", &Open::run, Presence::required),
                      field("worker", &Open::worker),
                      field("fork_server", &Open::fork_server),
                      field("device", &Open::device),
                      field("share_gpus", &Open::share_gpus),
                      field("folder", &Open::folder),
                      field("environment", &Open::environment, Presence::sparse),
                      field("title", &Open::title),
                      field("size", &Open::size),
                      field("timeout_ms", &Open::timeout_ms),
                      field("start_timeout_ms", &Open::start_timeout_ms),
                      field("start_timeout_grows", &Open::start_timeout_grows),
                      field("grace_ms", &Open::grace_ms),
                      field("global_timeout_ms", &Open::global_timeout_ms),
                      field("slow_after_ms", &Open::slow_after_ms),
                      field("max_consecutive_timeouts", &Open::max_consecutive_timeouts),
                      field("max_failures", &Open::max_failures),
                      field("retries", &Open::retries),
                      field("retry_on", &Open::retry_on),
                      field("flaky_fails", &Open::flaky_fails),
                      field("compare_runs", &Open::compare_runs),
                      field("no_skip", &Open::no_skip),
                      field("expect_judged", &Open::expect_judged),
                      field("bound_factor", &Open::bound_factor, Presence::sparse),
                      field("dump_dir", &Open::dump_dir, Presence::sparse),
                      field("reference_cache", &Open::reference_cache),
                      field("diagnosis", &Open::diagnosis),
                      field("diagnosis_time_ms", &Open::diagnosis_time_ms)};
  }
};

// A case of a run that is open.
struct Submit {
  std::string run;
  Case c;
  std::string id;                     // empty: one that is made of the fields of the case
  std::optional<std::size_t> number;  // as in CaseFinished
  std::string rerun;                  // likewise
  int repetition = 1;                 // of `repetitions` of this case: which it is
  int repetitions = 1;
  std::optional<double> timeout_ms;                 // its own deadline; none: that of the run
  std::optional<int> retries = std::nullopt;        // likewise
  std::optional<Expected> expected = std::nullopt;  // as in CaseFinished; what is to be skipped gets no worker
  std::optional<OwnRanks> ranks = std::nullopt;     // what its ranks are started with, where it is not as in open

  static constexpr const char* kName = "submit";
  static constexpr auto fields() {
    return std::tuple{field("run", &Submit::run, Presence::required),
                      field("case", &Submit::c, Presence::required),
                      field("id", &Submit::id),
                      field("number", &Submit::number, Presence::sparse),
                      field("rerun", &Submit::rerun),
                      field("repetition", &Submit::repetition),
                      field("repetitions", &Submit::repetitions),
                      field("timeout_ms", &Submit::timeout_ms, Presence::sparse),
                      field("retries", &Submit::retries, Presence::sparse),
                      field("expected", &Submit::expected, Presence::sparse),
                      field("ranks", &Submit::ranks, Presence::sparse)};
  }
};

// No case of the run comes any more: when all have ended, so does the run.
struct Close {
  std::string run;

  static constexpr const char* kName = "close";
  static constexpr auto fields() { return std::tuple{field("run", &Close::run, Presence::required)}; }
};

// Ends the run: what waits ends as not_run, what runs as cancelled.
struct Cancel {
  std::string run;
  bool kill = false;  // without grace

  static constexpr const char* kName = "cancel";
  static constexpr auto fields() {
    return std::tuple{field("run", &Cancel::run, Presence::required), field("kill", &Cancel::kill)};
  }
};

struct AskStatus {
  static constexpr const char* kName = "status";
  static constexpr auto fields() { return std::tuple{}; }
};

// The service ends: cases that run end, those that wait are not run, and no client is let in.
struct Stop {
  static constexpr const char* kName = "stop";
  static constexpr auto fields() { return std::tuple{}; }
};

using Request = std::variant<Hello, Open, Submit, Close, Cancel, AskStatus, Stop>;

// --- What the service says: "reply" is its name ---

// The answer to hello.
struct Welcome {
  int protocol = kVersion;
  std::string version;
  int pid = 0;

  static constexpr const char* kName = "welcome";
  static constexpr auto fields() {
    return std::tuple{field("protocol", &Welcome::protocol, Presence::required), field("version", &Welcome::version),
                      field("pid", &Welcome::pid)};
  }
};

// Something happened in a run: an event as docs/events.md has it. The last one of a run is run_finished.
struct Happened {
  std::string run;
  nlohmann::json event;

  static constexpr const char* kName = "event";
  static constexpr auto fields() {
    return std::tuple{field("run", &Happened::run, Presence::required),
                      field("event", &Happened::event, Presence::required)};
  }
};

// A request was refused, as `message` says in a sentence; nothing else came of it.
struct Refused {
  std::string run;  // whose request; empty: of none
  std::string message;
  std::optional<std::size_t> number;  // of the submit
  bool fatal = false;                 // the connection ends

  static constexpr const char* kName = "refused";
  static constexpr auto fields() {
    return std::tuple{field("run", &Refused::run), field("message", &Refused::message, Presence::required),
                      field("number", &Refused::number, Presence::sparse), field("fatal", &Refused::fatal)};
  }
};

struct PoolStatus {
  PoolId pool;
  std::string worker;  // its command line
  std::string folder;
  int world_size = 0;
  std::string state;  // starting | idle | busy | ending
  double for_ms = 0;  // it has been so
  int cases = 0;      // it has run
  std::vector<int> slots;
  std::vector<int> pids;  // by rank
  std::string runs;       // the ID of its case
  int client = 0;         // and the pid of the client

  static constexpr auto fields() {
    return std::tuple{field("pool", &PoolStatus::pool),
                      field("worker", &PoolStatus::worker),
                      field("folder", &PoolStatus::folder),
                      field("world_size", &PoolStatus::world_size),
                      field("state", &PoolStatus::state),
                      field("for_ms", &PoolStatus::for_ms),
                      field("cases", &PoolStatus::cases),
                      field("slots", &PoolStatus::slots),
                      field("pids", &PoolStatus::pids),
                      field("runs", &PoolStatus::runs, Presence::sparse),
                      field("client", &PoolStatus::client, Presence::sparse)};
  }
};

struct DeviceStatus {
  std::string device;
  int slots = 0;  // ranks that may work at once
  int held = 0;   // by pools
  std::vector<std::string> gpus;

  static constexpr auto fields() {
    return std::tuple{field("device", &DeviceStatus::device), field("slots", &DeviceStatus::slots),
                      field("held", &DeviceStatus::held), field("gpus", &DeviceStatus::gpus, Presence::sparse)};
  }
};

struct ClientStatus {
  int pid = 0;
  std::string client;
  double for_ms = 0;  // it has been connected
  std::size_t runs = 0;
  std::size_t unfinished = 0;  // cases
  std::size_t finished = 0;
  bool held = false;  // it does not read its answers, so none of its cases begins

  static constexpr auto fields() {
    return std::tuple{field("pid", &ClientStatus::pid),
                      field("client", &ClientStatus::client),
                      field("for_ms", &ClientStatus::for_ms),
                      field("runs", &ClientStatus::runs),
                      field("unfinished", &ClientStatus::unfinished),
                      field("finished", &ClientStatus::finished),
                      field("held", &ClientStatus::held)};
  }
};

struct Status {
  int pid = 0;
  std::string version;
  double for_ms = 0;  // it has been running
  bool stopping = false;
  OutcomeCounts counts{};  // of all cases since it began
  std::vector<DeviceStatus> devices;
  std::vector<PoolStatus> pools;
  std::vector<ClientStatus> clients;

  static constexpr const char* kName = "status";
  static constexpr auto fields() {
    return std::tuple{field("pid", &Status::pid),       field("version", &Status::version),
                      field("for_ms", &Status::for_ms), field("stopping", &Status::stopping),
                      field("counts", &Status::counts), field("devices", &Status::devices),
                      field("pools", &Status::pools),   field("clients", &Status::clients)};
  }
};

// The service begins to stop; the connection ends when the client's runs have.
struct Stopping {
  std::string why;

  static constexpr const char* kName = "stopping";
  static constexpr auto fields() { return std::tuple{field("why", &Stopping::why)}; }
};

using Reply = std::variant<Welcome, Happened, Refused, Status, Stopping>;

// A line, with its newline.
std::string line_of(const Request& request);
std::string line_of(const Reply& reply);

// Throw protocol::ProtocolError or CaseError, which name field and value.
Request read_request(const nlohmann::json& line);
// nullopt: a reply that this version does not know.
std::optional<Reply> read_reply(const nlohmann::json& line);

}  // namespace cp_pool::service
