#include <csignal>
#include <span>

#include <asio/co_spawn.hpp>
#include <fmt/format.h>

#include "driver/conformance/conformance.h"
#include "driver/core/payload.h"
#include "driver/os/spawn.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::conformance {

namespace {

constexpr milliseconds kSurplusLimit{100};  // wait for surplus messages of a worker that answers no ping
constexpr std::chrono::hours kNoLimit{24};  // the pool's machine has limits of its own
constexpr milliseconds kLastWords{200};     // after an exit, for reading what is still in the pipes
constexpr std::size_t kMostWords = 300;

std::string shown(std::string_view line) {
  return on_one_line(protocol::cut_text(line, kMostWords));
}

RunConfig with_fault(const RunConfig& config, const std::string& fault) {
  OwnRanks own;
  own.environment = {"CP_POOL_INJECT=" + fault};
  return config_for(config, own);
}

}  // namespace

Stage::Stage() : signals_(io, SIGINT, SIGTERM, SIGHUP) {
  signals_.async_wait([this](asio::error_code error, int /*signal*/) { interrupted_ = interrupted_ || !error; });
}

bool Stage::wait(const std::function<bool()>& done, Clock::time_point limit) {
  while (!done()) {
    if (Clock::now() >= limit) return false;
    io.run_one_until(limit);
    if (interrupted_) throw Interrupted{};
  }
  return true;
}

Session::Session(Stage& stage, const RunConfig& config, int ranks, const std::string& fault)
    : stage_(stage),
      config_(with_fault(config, fault)),
      context_(stage.host, config_, *this),
      pool_(context_, {&config_, nullptr}, PoolId{"conformance", ++stage.sessions}, ranks, {},
            [] { return std::nullopt; }) {}

Session::~Session() {
  context_.stop.interrupted = context_.stop.kill_at_once = true;
  pool_.wake();
  while (running_) stage_.io.run_one();  // a start that was interrupted
  pool_.begin_to_retire({RetireReason::unhealthy, "", /*at_once=*/true});
  begin_next();
  while (running_) stage_.io.run_one();
}

void Session::begin_next() {
  running_ = true;
  asio::co_spawn(stage_.io, pool_.next(),
                 [this](const std::exception_ptr& error, std::optional<PoolMachine::Finished> finished) {
                   running_ = false;
                   if (error) std::rethrow_exception(error);
                   finished_ = std::move(finished);
                 });
}

std::string Session::start() {
  const auto began = Clock::now();
  begin_next();
  stage_.wait([this] { return !running_; }, began + kNoLimit);
  start_ms_ = in_ms(Clock::now() - began);
  const auto* const failure = std::get_if<StartFailure>(&*finished_);
  return failure == nullptr ? "" : failure->retirement.detail;
}

std::int64_t Session::begin(nlohmann::json request) {
  const std::int64_t seq = next_seq();
  request["seq"] = seq;
  first_unread_ = heard_.size();
  pool_.group().begin_case(seq);
  say(request);
  return seq;
}

Answer Session::conclude(std::int64_t seq, milliseconds limit) {
  Answer answer;
  answer.seq = seq;
  const auto began = Clock::now();
  const auto is_other_result = [seq](const Incoming& heard) {
    const auto* const result = message_in<protocol::ResultEvent>(heard);
    return result != nullptr && result->seq != seq;
  };
  wait([&] { return ended(seq) || std::ranges::any_of(std::span(heard_).subspan(first_unread_), is_other_result); },
       limit);
  answer.ms = in_ms(Clock::now() - began);
  // A message between the answer and the pong to this ping came unasked.
  if (!lost() && ended(seq)) ping();
  find_trouble(first_unread_, answer);
  if (!answer.answered() && answer.trouble.empty()) {
    answer.trouble = lost() ? why_lost() : fmt::format("no result within {} ms", limit.count());
  } else if (answer.trouble.empty() && !broken_.empty()) {
    answer.trouble = why_lost();
  }
  return answer;
}

// Looks through the messages since the request for the answer and for the first message that does not belong to it.
void Session::find_trouble(std::size_t from, Answer& answer) const {
  const auto note = [&](std::string text) {
    if (answer.trouble.empty()) answer.trouble = std::move(text);
  };
  for (std::size_t i = from; i < heard_.size(); ++i) {
    if (const auto* result = message_in<protocol::ResultEvent>(heard_[i])) {
      if (result->seq != answer.seq) {
        note(fmt::format("a result for seq {}, where seq {} was asked for", result->seq, answer.seq));
      } else if (answer.answered()) {
        note(fmt::format("a second result for seq {}", answer.seq));
      } else {
        answer.result = *result;
      }
    } else if (const auto* refusal = message_in<protocol::ProtocolErrorEvent>(heard_[i])) {
      if (!answer.answered() && refusal->seq.value_or(answer.seq) == answer.seq) answer.refusal = refusal->message;
    } else if (const auto* started = message_in<protocol::StartedEvent>(heard_[i])) {
      if (started->seq != answer.seq) {
        note(fmt::format("started with seq {}, where seq {} was asked for", started->seq, answer.seq));
      } else if (answer.answered()) {
        note("started after the result");
      } else if (answer.started) {
        note("started twice");
      } else {
        answer.started = true;
      }
    } else if (answer.started && message_in<protocol::ReadyEvent>(heard_[i]) != nullptr) {
      note("ready in the middle of a case");
    }
  }
}

std::optional<double> Session::ping(bool all) {
  const std::int64_t seq = next_seq();
  const auto began = Clock::now();
  nlohmann::json request{{"op", "ping"}, {"seq", seq}};
  if (all) request["all"] = true;
  say(request);
  wait([&] { return heard<protocol::PongEvent>(seq) || lost(); },
       stage_.answers_ping ? prompt_limit(config_) : kSurplusLimit);
  stage_.answers_ping = stage_.answers_ping && (heard<protocol::PongEvent>(seq) || lost());
  if (!heard<protocol::PongEvent>(seq)) return std::nullopt;
  return in_ms(Clock::now() - began);
}

bool Session::wait(const std::function<bool()>& done, milliseconds limit) {
  return stage_.wait(
      [&] {
        read_messages();
        return done();
      },
      Clock::now() + limit);
}

void Session::read_messages() {
  while (auto incoming = pool_.group().take()) {
    if (const auto* bad = std::get_if<ProtocolBreak>(&*incoming); bad != nullptr && broken_.empty()) {
      broken_ = bad->detail;
    }
    heard_.push_back(*std::move(incoming));
  }
}

bool Session::lost() const {
  const RankFacts facts = pool_.group().facts();
  return !broken_.empty() || !facts.ends.empty() || facts.stdin_broken || facts.stdout_closed;
}

std::string Session::why_lost() {
  if (!broken_.empty()) return broken_;
  // A rank that has lost a peer may be seen to end before the peer is, and a pipe may close before its rank ends.
  RankFacts facts;
  wait(
      [&] {
        facts = pool_.group().facts();
        return facts.all_ended && facts.drained;
      },
      kLastWords);
  if (!broken_.empty()) return broken_;
  if (!facts.ends.empty()) return describe_end(facts);
  return facts.stdin_broken ? "rank 0 closed its stdin" : "rank 0 closed its stdout";
}

// "rank 1 died: signal 9 (SIGKILL); its last words: ..", for the first rank that did not exit with 0; if all did, for
// the first that ended.
std::string Session::describe_end(const RankFacts& facts) {
  const auto ended_well = [](const RankEnd& end) { return end.status == ExitStatus{.signaled = false, .code = 0}; };
  const auto found = std::ranges::find_if_not(facts.ends, ended_well);
  const RankEnd& end = found == facts.ends.end() ? facts.ends.front() : *found;
  const int first = *end.rank;
  std::string text = fmt::format("{} died: {}", end.who, end.how);
  if (const std::string line = pool_.group().last_stderr_line(first); !line.empty()) {
    text += fmt::format("; its last words: {}", shown(line));
  } else if (first == 0 && !facts.last_chatter.empty()) {
    text += fmt::format("; its last words: {}", shown(facts.last_chatter));
  }
  return text;
}

}  // namespace cp_pool::conformance
