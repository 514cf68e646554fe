// The order of all rules, and those rules that need no case and no fault: how a worker starts, answers a ping, writes
// to stdout and ends.
#include "driver/conformance/conformance.h"

#include <algorithm>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/mapped.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::conformance {

namespace {

constexpr milliseconds kHelperLimit{500};
constexpr milliseconds kStackLimit{2000};

// The file descriptors that refer to the protocol's pipe, as (process ID, descriptor number).
std::vector<std::pair<pid_t, int>> holders_of(const std::string& pipe, const std::vector<ProcessInfo>& processes) {
  std::vector<std::pair<pid_t, int>> out;
  for (const ProcessInfo& process : processes) {
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process.pid), gone)) {
      std::error_code closed;
      if (std::filesystem::read_symlink(entry.path(), closed).string() != pipe) continue;
      out.emplace_back(process.pid, std::stoi(entry.path().filename().string()));
    }
  }
  return out;
}

}  // namespace

Conformance::Conformance(RunConfig config, int ranks, std::function<void(const Finding&)> tell)
    : config_(std::move(config)), ranks_(ranks), tell_(std::move(tell)) {}

void Conformance::tell(Compliance verdict, std::string rule, std::string text, std::string hint) {
  ++tally_.rules[verdict];
  tell_({verdict, std::move(rule), std::move(text), std::move(hint)});
}

Tally Conformance::run() {
  check_start();
  if (!tally_.started) return tally_;
  check_ping();
  check_case();
  check_fences();
  check_impossible_case();
  check_unknown_function();
  check_unknown_fields();
  check_unknown_op();
  check_large_lines();
  check_stacks();
  check_stdout();
  check_end("shutdown", [](Session& session) { session.say({{"op", "shutdown"}}); });
  check_end("end of stdin", [](Session& session) { session.group().close_stdin_when_written(); });
  check_busy_worker();
  for (int rank = 0; rank < ranks_; ++rank) check_throw(rank);
  for (int rank = 0; rank < ranks_; ++rank) check_kill(rank);
  return tally_;
}

Session* Conformance::warm_for(const std::string& rule) {
  if (warm_ && !warm_->lost()) return warm_.get();
  warm_.reset();
  auto session = std::make_unique<Session>(stage_, config_, ranks_, "");
  if (!session->start().empty()) {
    tell(untested, rule, "the worker does not get ready", "see ready");
    return nullptr;
  }
  warm_ = std::move(session);
  return warm_.get();
}

bool Conformance::has_case(const std::string& rule) {
  if (case_request_.is_null()) tell(untested, rule, kNoCase, "see case");
  return !case_request_.is_null();
}

std::string Conformance::hint_for(const std::string& trouble, const std::string& otherwise) {
  if (trouble.find("NaN") != std::string::npos || trouble.find("Infinity") != std::string::npos) {
    return R"(JSON has no NaN and no Infinity: write the strings "nan", "inf", "-inf")";
  }
  return otherwise;
}

std::optional<protocol::ResultEvent> Conformance::ask(const char* rule, const nlohmann::json& request,
                                                      const std::string& hint) {
  Session* const session = warm_for(rule);
  if (session == nullptr) return std::nullopt;
  const Answer answer = session->run(request);
  if (answer.trouble.empty() && answer.result) return answer.result;
  const std::string text =
      !answer.trouble.empty() ? answer.trouble : fmt::format("the worker refused the request: {}", *answer.refusal);
  tell(broken, rule, text, hint_for(text, hint));
  warm_.reset();
  return std::nullopt;
}

void Conformance::check_start() {
  constexpr const char* kHint =
      "rank 0 says {\"event\":\"ready\",\"protocol\":1,\"world_size\":N,..} once, when every rank can run a case";
  auto session = std::make_unique<Session>(stage_, config_, ranks_, "");
  if (const std::string why = session->start(); !why.empty()) {
    return tell(broken, "ready", why, kHint);
  }
  tally_.started = true;
  // All messages before the pong, other than `ready`, came unasked.
  ping_ms_ = session->ping();
  const protocol::ReadyEvent ready = session->ready();
  std::string surplus;
  for (const Incoming& incoming : session->messages()) {
    if (message_in<protocol::ReadyEvent>(incoming) != nullptr) surplus = "ready twice";
    if (message_in<protocol::ResultEvent>(incoming) != nullptr) surplus = "a result before any case";
  }
  if (surplus.empty() && session->lost()) surplus = session->why_lost();
  if (!surplus.empty()) return tell(broken, "ready", surplus, kHint);
  tell(ok, "ready",
       fmt::format("{} on {}, {} after {}", count_of(ready.world_size, "rank"),
                   ready.device.empty() ? "a device without a name" : ready.device,
                   ready.worker.empty() ? "a worker without a name" : ready.worker,
                   format_duration(session->start_ms())));
  warm_ = std::move(session);
}

// Chatter between messages does not break the protocol, but a print without a newline would swallow the message after
// it. So a worker has to keep stray prints away from the pipe.
void Conformance::check_stdout() {
  constexpr const char* kRule = "stdout";
  constexpr const char* kHint =
      "before anything prints, rank 0 duplicates fd 1 for the protocol and points fd 1 at stderr: os.dup(1), "
      "os.dup2(2, 1)";
  Session* const session = warm_for(kRule);
  if (session == nullptr) return;
  if (const std::string_view line = session->group().facts().last_chatter; !line.empty()) {
    return tell(broken, kRule,
                fmt::format("a line that is no message came between the answers: {}", protocol::cut_text(line, 200)),
                kHint);
  }
  const auto holders = holders_of(session->group().stdout_name(), session->processes());
  if (holders.empty()) {
    return tell(untested, kRule, "this machine does not show who holds the pipe of the protocol",
                "look whether rank 0 points fd 1 at stderr");
  }
  // A shell that started the worker may hold the pipe as its fd 1, too. So a process counts only if it also holds the
  // pipe under another number.
  const bool set_apart = std::ranges::any_of(holders, [](const auto& holder) { return holder.second > 2; });
  const bool still_fd1 = std::ranges::any_of(holders, [&](const auto& holder) {
    return holder.second == 1 && std::ranges::any_of(holders, [&](const auto& other) {
             return other.first == holder.first && other.second > 2;
           });
  });
  if (!set_apart || still_fd1) {
    return tell(broken, kRule, "fd 1 of rank 0 is the pipe of the protocol: a stray print goes there", kHint);
  }
  tell(ok, kRule, "the protocol has a descriptor of its own, and nothing else was written to it");
}

void Conformance::check_end(const char* rule, const std::function<void(Session&)>& end) {
  Session* const session = warm_for(rule);
  if (session == nullptr) return;
  end(*session);
  const auto began = Clock::now();
  const bool ended = session->wait([&] { return session->group().facts().all_ended; }, prompt_limit(config_));
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  std::vector<int> alive;
  for (std::size_t rank = 0; rank < session->group().ranks().size(); ++rank) {
    if (!session->group().ranks()[rank].exit) alive.push_back(static_cast<int>(rank));
  }
  // Helper processes that end with the ranks may take a moment longer than the ranks.
  std::vector<ProcessInfo> left = session->processes();
  for (const auto limit = Clock::now() + kHelperLimit; ended && !left.empty() && Clock::now() < limit;) {
    session->wait([] { return false; }, milliseconds{10});
    left = session->processes();
  }
  warm_.reset();
  if (!ended) {
    return tell(broken, rule, fmt::format("rank {} still lives {} later", fmt::join(alive, ", "), format_duration(ms)),
                "rank 0 ends the other ranks, then itself, within a second");
  }
  if (!left.empty()) {
    const std::vector<int> pids = mapped(left, &ProcessInfo::pid);
    return tell(broken, rule, fmt::format("the ranks have ended, and process {} is left", fmt::join(pids, ", ")),
                "end what the ranks have started before they end themselves");
  }
  tell(ok, rule, fmt::format("every rank ended within {}, and nothing is left", format_duration(ms)));
}

void Conformance::check_ping() {
  Session* const session = warm_for("ping");
  if (session == nullptr) return;
  if (!ping_ms_) {
    return tell(broken, "ping", "no pong with the seq of the ping",
                "answer {\"op\":\"ping\",\"seq\":N} by {\"event\":\"pong\",\"seq\":N} at once");
  }
  if (!session->ping(true)) {
    const std::string why = session->lost() ? session->why_lost() : "no pong to a ping with \"all\":true";
    return tell(broken, "ping", why, "after a second answer with the ranks that have answered");
  }
  tell(ok, "ping", fmt::format("pong after {}", format_duration(*ping_ms_)));
}

void Conformance::check_stacks() {
  constexpr const char* kRule = "stacks";
  constexpr const char* kHint =
      "at a deadline each rank gets SIGUSR2, whose default action kills it: write the stack of every thread to stderr "
      "(Python: faulthandler.register(signal.SIGUSR2))";
  Session* const session = warm_for(kRule);
  if (session == nullptr) return;
  WorkerGroup& group = session->group();
  group.begin_case(session->next_seq());
  group.ask_for_stacks();
  const auto silent = [&] {
    std::vector<int> out;
    for (const StderrTail& tail : group.tails()) {
      if (tail.text.empty()) out.push_back(tail.rank);
    }
    return out;
  };
  session->wait([&] { return session->lost() || silent().empty(); }, kStackLimit);
  if (session->lost()) return tell(absent, kRule, session->why_lost(), kHint);
  if (const auto ranks = silent(); !ranks.empty()) {
    return tell(absent, kRule, fmt::format("rank {} says nothing at SIGUSR2", fmt::join(ranks, ", ")), kHint);
  }
  tell(ok, kRule, "every rank writes to stderr at SIGUSR2, and goes on");
}

}  // namespace cp_pool::conformance
