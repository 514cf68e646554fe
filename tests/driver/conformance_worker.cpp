// A worker that computes nothing and keeps every rule of `cp-pool conformance` except those that its options name:
// conformance_worker [--break=RULE].. It obeys CP_POOL_INJECT=KIND@RANK:PHASE for the kinds throw, sigkill and hang.
#include <csignal>
#include <cstdlib>
#include <set>
#include <string_view>
#include <sys/prctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/driver/fake_worker/control_plane.h"
#include "tests/driver/fake_worker/faults.h"
#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"

namespace cp_pool::fake {
namespace {

using nlohmann::json;

std::set<std::string> broken;  // the rules that this worker breaks

bool breaks(const char* rule) {
  return broken.contains(rule);
}

void print_where_it_stands(int /*signal*/) {
  constexpr std::string_view kText = "stack of this rank\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
}

int depth_of(const json& value) {
  int deepest = 0;
  if (value.is_structured()) {
    for (const json& item : value) deepest = std::max(deepest, depth_of(item));
  }
  return deepest + 1;
}

struct Injected {
  std::string kind;  // empty if no fault is injected
  int rank = 0;
};

Injected injected() {
  const char* text = std::getenv("CP_POOL_INJECT");
  if (text == nullptr || *text == '\0' || breaks("obeys_faults")) return {};
  const std::string fault{text};
  const std::size_t at = fault.find('@');
  return {fault.substr(0, at), std::atoi(fault.c_str() + at + 1)};
}

class RankZero {
 public:
  explicit RankZero(const protocol::RankEnvironment& environment)
      : world_size_(environment.world_size), ranks_(environment), fault_(injected()) {
    if (breaks("set_apart")) {
      out_ = STDOUT_FILENO;
    } else {
      out_ = ::dup(STDOUT_FILENO);
      ::dup2(STDERR_FILENO, STDOUT_FILENO);
    }
    if (breaks("result_of_a_case")) say({{"event", "result"}, {"seq", 1}, {"outcome", "pass"}});
    json ready{{"event", "ready"},
               {"protocol", breaks("version") ? 2 : 1},
               {"world_size", breaks("world_size") ? world_size_ + 1 : world_size_},
               {"worker", "conformance_worker"},
               {"device", "cpu"}};
    ready["capabilities"]["figures"] = !breaks("promise");
    ready["capabilities"]["calls"] = true;
    if (!breaks("offer")) ready["capabilities"]["requests"] = {"cancel"};
    if (breaks("json")) write_all(out_, fmt::format("{}{{ready}}\n", protocol::kResponsePrefix));
    say(ready);
    if (breaks("ready_once")) say(ready);
  }

  void serve() {
    while (const auto line = requests_.next()) {
      if (breaks("long_lines") && line->size() > 65536) _exit(5);
      const json request = json::parse(*line);
      const std::string op = request.at("op");
      if (op == "shutdown" && !breaks("shutdown")) end();
      if (op == "ping") answer_ping(request);
      if (op == "cancel") cancel(request);
      if (op == "run") run(request);
      if (op == "x_conformance" && breaks("unknown_op_dies")) _exit(6);
      if (op == "x_conformance" && !breaks("unknown_op")) refuse(request.at("seq"), "unknown op");
    }
    if (breaks("end_of_stdin")) hang();
    _exit(0);
  }

 private:
  [[noreturn]] static void end() {
    if (breaks("no_process_is_left") && ::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      ::closefrom(3);  // an open control connection would look like a living rank 0 to the other rank
      ::setsid();
      hang();
    }
    _exit(0);
  }

  void say(const json& event) const {
    write_all(out_, fmt::format("\n{}{}\n", protocol::kResponsePrefix, event.dump()));
  }
  void refuse(std::int64_t seq, const char* why) const {
    say({{"event", "protocol_error"}, {"seq", seq}, {"message", why}});
  }

  void answer_ping(const json& request) const {
    if (breaks("pong") || (breaks("pong_under_load") && running_)) return;
    const std::int64_t seq = request.at("seq");
    say({{"event", "pong"}, {"seq", breaks("seq_of_pong") ? seq + 1000 : seq}});
  }

  void cancel(const json& request) {
    if (!running_ || breaks("cancel") || breaks("offer")) return;
    if (breaks("refusal_of_cancel")) return refuse(request.at("seq"), "unknown op cancel");
    running_ = false;
    json result = result_of(request.at("seq"));
    result.update({{"outcome", "cancelled"}, {"reason", "cancelled on request"}, {"checks", json::array()}});
    say(result);
    if (breaks("one_result_of_cancel")) say(result);
  }

  json result_of(std::int64_t seq) const {
    json result{{"event", "result"}, {"seq", seq}, {"outcome", "pass"}, {"reason", ""}};
    for (int rank = 0; rank < world_size_; ++rank) {
      result["ranks"].push_back({{"rank", rank}, {"ok", true}});
      result["checks"].push_back({{"tensor", "out"}, {"rank", rank}, {"ok", true}, {"error", 0.5}, {"bound", 1}});
    }
    if (breaks("bound")) result["checks"][1]["error"] = 2;
    if (breaks("ranks")) result["ranks"].erase(1);
    if (breaks("rank_of_the_group")) result["ranks"][1]["rank"] = world_size_;
    if (breaks("checks")) result["checks"].clear();
    if (breaks("seq")) result["seq"] = seq + 1000;
    return result;
  }

  // Applies the injected fault. Returns true if the case then needs no result from its normal path.
  bool suffer(std::int64_t seq) {
    const int rank = fault_.rank;
    if (fault_.kind == "hang") {
      running_ = true;
      return true;
    }
    if (fault_.kind == "throw") {
      if (breaks("report_of_throw")) return true;
      json result = result_of(seq);
      result.update({{"outcome", breaks("outcome_of_throw") ? "timeout" : "error"},
                     {"reason", breaks("name_in_throw") ? "it failed" : fmt::format("rank {}: injected", rank)},
                     {"healthy", false}});
      if (!breaks("name_in_throw") && !breaks("ranks")) result["ranks"][static_cast<std::size_t>(rank)]["ok"] = false;
      say(result);
      return true;
    }
    if (fault_.kind == "sigkill") {
      if (!breaks("death"))
        ::kill(rank == 0 ? ::getpid() : ranks_.pids().at(static_cast<std::size_t>(rank - 1)), SIGKILL);
      return true;
    }
    return false;
  }

  void run_call(std::int64_t seq) const {
    json result = result_of(seq);
    if (!breaks("unknown_function")) result.update({{"outcome", "error"}, {"reason", "there is no such function"}});
    say({{"event", "started"}, {"seq", seq}});
    say(result);
  }

  void run(const json& request) {
    const std::int64_t seq = request.at("seq");
    if (request.contains("call")) return run_call(seq);
    // The capabilities list no case fields, so the worker takes only those of protocol version 1.
    if (request.at("case").contains("input_scale")) return refuse(seq, "unknown field input_scale");
    const bool known = request.at("case").at("comm") == "p2p";
    const bool extended = request.contains("x_conformance");
    if (breaks("unknown_fields") && extended) return refuse(seq, "unknown field x_conformance");
    if (breaks("deep_lines") && depth_of(request) > 20) return refuse(seq, "too deep");
    if (breaks("line_of_its_own")) write_all(out_, "half a line of progress");
    if (!breaks("started") && !breaks("started_first")) say({{"event", "started"}, {"seq", seq}});
    if (suffer(seq)) return;
    fence(seq);
    json result = result_of(seq);
    if (!known && !breaks("skip")) result.update({{"outcome", "skip"}, {"reason", "no such communication here"}});
    if (breaks("reason")) result["outcome"] = "skip";
    if (breaks("nan")) {
      write_all(
          out_,
          fmt::format("\n{}{{\"event\":\"result\",\"seq\":{},\"outcome\":\"pass\",\"checks\":[{{\"error\":NaN}}]}}\n",
                      protocol::kResponsePrefix, seq));
    } else {
      say(result);
    }
    if (breaks("started_first")) say({{"event", "started"}, {"seq", seq}});
    if (breaks("one_result")) say(result);
  }

  void fence(std::int64_t seq) {
    if (breaks("fences")) return;
    if (!breaks("fence_of_every_rank")) {
      for (int rank = 1; rank < world_size_; ++rank) ranks_.tell(rank, fmt::format("fence {}", seq));
    }
    write_all(STDERR_FILENO, protocol::format_fence(seq));
  }

  int world_size_;
  int out_ = -1;
  Ranks ranks_;
  Injected fault_;
  LineReader requests_{STDIN_FILENO};
  bool running_ = false;
};

[[noreturn]] void serve(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg{argv[i]};
    if (arg.starts_with("--break=")) broken.emplace(arg.substr(arg.find('=') + 1));
  }
  const protocol::RankEnvironment environment = protocol::read_environment();
  if (!breaks("stacks")) ::signal(SIGUSR2, print_where_it_stands);
  if (breaks("start")) {
    write_all(STDERR_FILENO, "no license for this machine\n");
    _exit(1);
  }
  if (breaks("ready")) hang();
  if (environment.rank > 0) serve_rank_zero(environment);
  RankZero(environment).serve();
  _exit(0);
}

}  // namespace
}  // namespace cp_pool::fake

int main(int argc, char** argv) {
  cp_pool::fake::serve(argc, argv);
}
