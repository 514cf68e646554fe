// The rules for a worker with a fault. The worker injects the fault into itself when CP_POOL_INJECT asks for it.
#include <algorithm>

#include <fmt/format.h>

#include "driver/conformance/conformance.h"
#include "driver/os/spawn.h"
#include "driver/report/text_format.h"

namespace cp_pool::conformance {

namespace {

constexpr milliseconds kUnlistedCancelWait{500};
constexpr const char* kObey = "let the worker obey CP_POOL_INJECT=KIND@RANK:PHASE (docs/writing_a_worker.md)";
constexpr const char* kPingUnderLoad = "ping under load";
constexpr const char* kCancel = "cancel";

std::string not_obeyed(const std::string& fault) {
  return fmt::format("the worker does not obey CP_POOL_INJECT={}", fault);
}

// Whether the answer blames this rank.
bool blames(const protocol::ResultEvent& result, int rank) {
  const auto entry = std::ranges::find(result.ranks, rank, &protocol::RankResult::rank);
  const bool listed = entry != result.ranks.end() && !entry->ok && !entry->aborted;
  return listed || result.reason.find(fmt::format("rank {}", rank)) != std::string::npos;
}

}  // namespace

std::unique_ptr<Session> Conformance::with_fault(const std::string& fault, const std::vector<std::string>& rules) {
  std::unique_ptr<Session> session;
  std::string text = "no case has passed";
  const char* hint = "see case";
  if (!case_request_.is_null() && case_outcome_ == CaseOutcome::pass) {
    session = std::make_unique<Session>(stage_, config_, ranks_, fault);
    const std::string why = session->start();
    if (why.empty()) return session;
    text = fmt::format("not ready with CP_POOL_INJECT={}: {}", fault, why);
    hint = kObey;
  }
  for (const std::string& rule : rules) {
    begin(rule, hint);
    tell(untested, text);
  }
  throw Told{};
}

// Runs a case in which a rank hangs. Tests whether rank 0 still answers a ping, and whether the case can be cancelled.
void Conformance::check_busy_worker() {
  const auto session = with_fault(fmt::format("hang@{}:inside", ranks_ - 1), {kPingUnderLoad, kCancel});
  const std::int64_t seq = session->begin(case_request_);
  session->wait(
      [&] {
        return session->heard<protocol::StartedEvent>(seq) || session->heard<protocol::ResultEvent>(seq) ||
               session->lost();
      },
      config_.timeout);
  check_busy_ping(*session, seq);
  check_cancel(*session, seq);
}

void Conformance::check_busy_ping(Session& session, std::int64_t seq) {
  begin(kPingUnderLoad, "read stdin on a thread of its own, and answer ping there while a case runs");
  if (!ping_ms_) return tell(untested, "no ping is answered", "see ping");
  const std::int64_t ping = session.next_seq();
  session.say({{"op", "ping"}, {"seq", ping}});
  session.wait(
      [&] {
        return session.heard<protocol::PongEvent>(ping) || session.heard<protocol::ResultEvent>(seq) || session.lost();
      },
      prompt_limit(config_));
  if (session.heard<protocol::PongEvent>(ping) && !session.heard<protocol::ResultEvent>(seq)) {
    return tell(ok, "pong while a case ran");
  }
  if (session.heard<protocol::ResultEvent>(seq)) {
    return tell(untested, "the case was over before the ping was answered", kObey);
  }
  tell(broken, session.lost() ? session.why_lost() : "no pong while a rank hung");
}

void Conformance::check_cancel(Session& session, std::int64_t seq) {
  begin(kCancel,
        "end the case and say its result, usually \"cancelled\"; a worker that ignores cancel does not list it");
  const bool offered = session.offers("cancel");
  const bool over = session.heard<protocol::ResultEvent>(seq);
  if (session.lost()) return tell(untested, session.why_lost(), "see ping under load");
  session.say({{"op", "cancel"}, {"seq", seq}});
  if (over) {
    // No message may follow the result of a case.
    const Answer answer = session.conclude(seq, milliseconds{0});
    if (!answer.trouble.empty()) return tell(broken, answer.trouble, "a case that is over has no other result");
    return tell(offered ? untested : absent, "the case was over before it could be cancelled",
                offered ? kObey : "a worker that acts on cancel lists it in capabilities.requests");
  }
  const bool came =
      session.wait([&] { return session.ended(seq); },
                   offered ? prompt_limit(config_) : std::min(prompt_limit(config_), kUnlistedCancelWait));
  if (session.lost()) return tell(broken, session.why_lost());
  if (session.heard<protocol::ProtocolErrorEvent>(seq)) {
    return tell(broken, "a protocol_error with the seq of the case, which ends it as an error");
  }
  if (!came && offered) return tell(broken, "no result, though capabilities.requests lists cancel");
  if (!came) {
    return tell(absent, "cancel is ignored, and not offered",
                "a worker that acts on it keeps its answer at Ctrl-C; it lists cancel in capabilities.requests");
  }
  const Answer answer = session.conclude(seq, milliseconds{0});
  if (!answer.trouble.empty()) return tell(broken, answer.trouble);
  tell(ok, fmt::format("the case ends as {}", to_string(answer.result->outcome)));
}

void Conformance::check_throw(int rank) {
  const std::string rule = fmt::format("throw of rank {}", rank);
  const std::string fault = fmt::format("throw@{}:inside", rank);
  const auto session = with_fault(fault, {rule});
  begin(rule,
        "report an exception over a channel apart from the one that the peers wait in, as error, naming the rank");
  const Answer answer = session->run(case_request_);
  if (!answer.result) {
    // A run reports a rank that dies of its exception as a crash with its last words. That is enough if the rank says
    // why it dies.
    const bool died = session->group().ranks()[static_cast<std::size_t>(rank)].exit.has_value();
    if (died && !session->group().last_stderr_line(rank).empty()) return tell(ok, answer.trouble);
    return tell(broken, answer.trouble.empty() ? answer.refusal.value_or("") : answer.trouble);
  }
  const protocol::ResultEvent& result = *answer.result;
  if (result.outcome == CaseOutcome::pass || result.outcome == CaseOutcome::skip) {
    return tell(untested, not_obeyed(fault), kObey);
  }
  const std::string& reason = result.reason;
  if (result.outcome != CaseOutcome::error) {
    return tell(broken, fmt::format("told as {}: {}", to_string(result.outcome), reason));
  }
  if (!blames(result, rank)) {
    return tell(broken, fmt::format("the error does not name rank {}: {}", rank, reason));
  }
  if (!answer.trouble.empty()) return tell(broken, answer.trouble);
  if (!result.healthy) {
    return tell(ok, fmt::format("error after {}, and a new pool is asked for: {}", format_duration(answer.ms), reason));
  }
  // "healthy":true claims that every rank is usable again.
  const Answer next = session->run(case_request_);
  if (!next.answered()) {
    return tell(broken, fmt::format("the next case on a pool that is \"healthy\": {}", next.trouble),
                "\"healthy\":false asks for a new pool, which is always right");
  }
  tell(ok, fmt::format("error after {}, and the next case has its answer: {}", format_duration(answer.ms), reason));
}

void Conformance::check_kill(int rank) {
  const std::string rule = fmt::format("kill of rank {}", rank);
  const std::string fault = fmt::format("sigkill@{}:inside", rank);
  const auto session = with_fault(fault, {rule});
  begin(rule,
        "a rank is the process that cp-pool started, or ends with it: exec the worker in a script that starts it");
  const auto began = Clock::now();
  const Answer answer = session->run(case_request_);
  const auto& dead = session->group().ranks()[static_cast<std::size_t>(rank)].exit;
  const bool right =
      answer.result && (answer.result->outcome == CaseOutcome::pass || answer.result->outcome == CaseOutcome::skip);
  if (right && !session->lost()) return tell(untested, not_obeyed(fault), kObey);
  session->wait([&] { return dead.has_value(); }, milliseconds{500});
  if (!dead) {
    const std::string seen =
        answer.result ? fmt::format("the case ends as {}", to_string(answer.result->outcome)) : answer.trouble;
    return tell(broken, fmt::format("{}, and the process of rank {} lives on", seen, rank));
  }
  const double ms = in_ms(Clock::now() - began);
  tell(ok, fmt::format("seen within {}: {}", format_duration(ms), describe(*dead)));
}

}  // namespace cp_pool::conformance
