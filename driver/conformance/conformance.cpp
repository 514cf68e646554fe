// The order of all rules, and those rules that need no case and no fault: how a worker starts, answers a ping, writes
// to stdout and ends.
#include "driver/conformance/conformance.h"

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
constexpr int kDepth = 60;  // so that the whole request is nested at most 64 deep
constexpr std::size_t kLongField = protocol::kMaxLineBytes - (std::size_t{64} << 10U);

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

void Conformance::tell(Compliance verdict, std::string text, const std::optional<std::string>& other_hint) {
  ++tally_.rules[verdict];
  tell_({verdict, rule_, std::move(text), other_hint.value_or(verdict == ok ? "" : hint_)});
}

Tally Conformance::run() {
  const auto check = [this](const auto& rule, const auto&... arguments) {
    try {
      std::invoke(rule, this, arguments...);
    } catch (const Told&) {
      return;
    }
  };
  check(&Conformance::check_start);
  if (!tally_.started) return tally_;
  check(&Conformance::check_ping);
  check(&Conformance::check_case);
  check(&Conformance::check_fences);
  check(&Conformance::check_impossible_case);
  check(&Conformance::check_unknown_function);
  check(&Conformance::check_unknown_fields);
  check(&Conformance::check_unknown_op);
  nlohmann::json deep = nlohmann::json::array();
  for (int i = 1; i < kDepth; ++i) deep = nlohmann::json::array({std::move(deep)});
  begin("deep line", "a line may be nested 64 deep");
  check(&Conformance::check_large_line, deep, fmt::format("a field nested {} deep", kDepth));
  begin("long line", "a line may hold 16 MiB: read until its newline, whatever a buffer holds");
  check(&Conformance::check_large_line, std::string(kLongField, 'x'), "a line of nearly 16 MiB");
  check(&Conformance::check_stacks);
  check(&Conformance::check_stdout);
  begin("shutdown", "");
  check(&Conformance::check_end, [](Session& session) { session.say({{"op", "shutdown"}}); });
  begin("end of stdin", "");
  check(&Conformance::check_end, [](Session& session) { session.group().close_stdin_when_written(); });
  check(&Conformance::check_busy_worker);
  for (int rank = 0; rank < ranks_; ++rank) check(&Conformance::check_throw, rank);
  for (int rank = 0; rank < ranks_; ++rank) check(&Conformance::check_kill, rank);
  return tally_;
}

Session& Conformance::warm() {
  if (warm_ && !warm_->lost()) return *warm_;
  warm_.reset();
  auto session = std::make_unique<Session>(stage_, config_, ranks_, "");
  if (!session->start().empty()) {
    tell(untested, "the worker does not get ready", "see ready");
    throw Told{};
  }
  warm_ = std::move(session);
  return *warm_;
}

const nlohmann::json& Conformance::known_case() {
  if (!case_request_.is_null()) return case_request_;
  tell(untested, kNoCase, "see case");
  throw Told{};
}

void Conformance::tell_trouble(const std::string& trouble) {
  const bool no_number = trouble.find("NaN") != std::string::npos || trouble.find("Infinity") != std::string::npos;
  tell(broken, trouble,
       no_number ? R"(JSON has no NaN and no Infinity: write the strings "nan", "inf", "-inf")" : hint_);
}

protocol::ResultEvent Conformance::ask(const nlohmann::json& request) {
  Answer answer = warm().run(request);
  if (answer.trouble.empty() && answer.result) return *std::move(answer.result);
  tell_trouble(!answer.trouble.empty() ? answer.trouble
                                       : fmt::format("the worker refused the request: {}", *answer.refusal));
  warm_.reset();
  throw Told{};
}

void Conformance::check_start() {
  begin("ready",
        "rank 0 says {\"event\":\"ready\",\"protocol\":1,\"world_size\":N,..} once, when every rank can run a case");
  auto session = std::make_unique<Session>(stage_, config_, ranks_, "");
  if (const std::string why = session->start(); !why.empty()) return tell(broken, why);
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
  if (!surplus.empty()) return tell(broken, surplus);
  tell(ok, fmt::format("{} on {}, {} after {}", count_of(ready.world_size, "rank"),
                       ready.device.empty() ? "a device without a name" : ready.device,
                       ready.worker.empty() ? "a worker without a name" : ready.worker,
                       format_duration(session->start_ms())));
  warm_ = std::move(session);
}

// Chatter between messages does not break the protocol, but a print without a newline would swallow the message after
// it. So a worker has to keep stray prints away from the pipe.
void Conformance::check_stdout() {
  begin("stdout",
        "before anything prints, rank 0 duplicates fd 1 for the protocol and points fd 1 at stderr: os.dup(1), "
        "os.dup2(2, 1)");
  Session& session = warm();
  if (const std::string_view line = session.group().facts().last_chatter; !line.empty()) {
    return tell(broken,
                fmt::format("a line that is no message came between the answers: {}", protocol::cut_text(line, 200)));
  }
  const auto holders = holders_of(session.group().stdout_name(), session.processes());
  if (holders.empty()) {
    return tell(untested, "this machine does not show who holds the pipe of the protocol",
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
    return tell(broken, "fd 1 of rank 0 is the pipe of the protocol: a stray print goes there");
  }
  tell(ok, "the protocol has a descriptor of its own, and nothing else was written to it");
}

void Conformance::check_end(const std::function<void(Session&)>& end) {
  Session& session = warm();
  end(session);
  const auto began = Clock::now();
  const bool ended = session.wait([&] { return session.group().facts().all_ended; }, prompt_limit(config_));
  const double ms = in_ms(Clock::now() - began);
  std::vector<int> alive;
  for (std::size_t rank = 0; rank < session.group().ranks().size(); ++rank) {
    if (!session.group().ranks()[rank].exit) alive.push_back(static_cast<int>(rank));
  }
  // Helper processes that end with the ranks may take a moment longer than the ranks.
  std::vector<ProcessInfo> left = session.processes();
  for (const auto limit = Clock::now() + kHelperLimit; ended && !left.empty() && Clock::now() < limit;) {
    session.wait([] { return false; }, milliseconds{10});
    left = session.processes();
  }
  warm_.reset();
  if (!ended) {
    return tell(broken, fmt::format("rank {} still lives {} later", fmt::join(alive, ", "), format_duration(ms)),
                "rank 0 ends the other ranks, then itself, within a second");
  }
  if (!left.empty()) {
    const std::vector<int> pids = mapped(left, &ProcessInfo::pid);
    return tell(broken, fmt::format("the ranks have ended, and process {} is left", fmt::join(pids, ", ")),
                "end what the ranks have started before they end themselves");
  }
  tell(ok, fmt::format("every rank ended within {}, and nothing is left", format_duration(ms)));
}

void Conformance::check_ping() {
  begin("ping", "answer {\"op\":\"ping\",\"seq\":N} by {\"event\":\"pong\",\"seq\":N} at once");
  Session& session = warm();
  if (!ping_ms_) return tell(broken, "no pong with the seq of the ping");
  if (!session.ping(true)) {
    const std::string why = session.lost() ? session.why_lost() : "no pong to a ping with \"all\":true";
    return tell(broken, why, "after a second answer with the ranks that have answered");
  }
  tell(ok, fmt::format("pong after {}", format_duration(*ping_ms_)));
}

void Conformance::check_stacks() {
  begin("stacks",
        "at a deadline each rank gets SIGUSR2, whose default action kills it: write the stack of every thread to "
        "stderr (Python: faulthandler.register(signal.SIGUSR2))");
  Session& session = warm();
  WorkerGroup& group = session.group();
  group.begin_case(session.next_seq());
  group.ask_for_stacks();
  const auto silent = [&] {
    std::vector<int> out;
    for (const StderrTail& tail : group.tails()) {
      if (tail.text.empty()) out.push_back(tail.rank);
    }
    return out;
  };
  session.wait([&] { return session.lost() || silent().empty(); }, kStackLimit);
  if (session.lost()) return tell(absent, session.why_lost());
  if (const auto ranks = silent(); !ranks.empty()) {
    return tell(absent, fmt::format("rank {} says nothing at SIGUSR2", fmt::join(ranks, ", ")));
  }
  tell(ok, "every rank writes to stderr at SIGUSR2, and goes on");
}

}  // namespace cp_pool::conformance
