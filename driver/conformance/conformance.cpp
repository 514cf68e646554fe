#include "driver/conformance/conformance.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "cases/case_names.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "driver/figures.h"
#include "driver/pool/case_request.h"
#include "driver/process/exit_status.h"
#include "driver/reporters/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::conformance {

namespace {

constexpr milliseconds kFenceLimit{1000};
constexpr milliseconds kHelperLimit{500};
constexpr milliseconds kStackLimit{2000};
constexpr int kDepth = 60;  // with the request around it at most 64
constexpr std::size_t kLongField = protocol::kMaxLineBytes - (std::size_t{64} << 10U);

constexpr const char* kNoCase = "no case has an answer";
constexpr const char* kNoUnknownFields = "it would take a field that the worker does not know";
constexpr const char* kNoStart = "the worker does not get ready";

// Small cases with common features, so that most workers can run at least one.
std::vector<Case> candidates(int ranks) {
  std::vector<Case> out;
  for (const CommType comm : kValues<CommType>) {
    if (!facts_of(comm).takes_size(ranks)) continue;
    Case small;
    small.suite = "conformance";
    small.model = "smallest";
    small.cp_size = ranks;
    small.comm = comm;
    small.dtype = DType::fp32;
    small.batch = 1;
    small.seqlen_q = small.seqlen_kv = 16;
    small.heads = small.kv_heads = 2;
    small.head_dim_qk = small.head_dim_v = 8;
    Case common = small;  // for kernels that know no other shape
    common.model = "common";
    common.dtype = DType::bf16;
    common.causal = true;
    common.seqlen_q = common.seqlen_kv = 256;
    common.head_dim_qk = common.head_dim_v = 64;
    out.insert(out.end(), {small, common});
  }
  return out;
}

nlohmann::json request_of(const Case& c, const nlohmann::json& capabilities, milliseconds timeout) {
  protocol::RunRequest request;
  request.id = fmt::format("conformance/{}/{}", c.model, to_string(c.comm));
  request.case_json = case_for_worker(c, capabilities);
  request.lengths = to_json(resolve_lengths(c));
  request.timeout_ms = timeout.count();
  return nlohmann::json::parse(protocol::encode(protocol::Request{request}));
}

// Nothing but what a reader of the answer may see: the message of a JSON reader, say.
std::string hint_for(const std::string& trouble, const std::string& otherwise) {
  if (trouble.find("NaN") != std::string::npos || trouble.find("Infinity") != std::string::npos) {
    return R"(JSON has no NaN and no Infinity: write the strings "nan", "inf", "-inf")";
  }
  return otherwise;
}

// Descriptors that are the pipe of the protocol: (process, number).
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

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::broken:
      return "BROKEN";
    case Verdict::absent:
      return "absent";
    case Verdict::untested:
      break;
  }
  return "untested";
}

Conformance::Conformance(Config config, std::function<void(const Finding&)> tell)
    : config_(std::move(config)), tell_(std::move(tell)) {}

void Conformance::tell(Verdict verdict, std::string rule, std::string text, std::string hint) {
  switch (verdict) {
    case Verdict::ok:
      ++tally_.ok;
      break;
    case Verdict::broken:
      ++tally_.broken;
      break;
    case Verdict::absent:
      ++tally_.absent;
      break;
    case Verdict::untested:
      ++tally_.untested;
      break;
  }
  tell_({verdict, std::move(rule), std::move(text), std::move(hint)});
}

Tally Conformance::run() {
  check_start();
  if (!tally_.started) return tally_;
  check_ping();
  check_case();
  check_fences();
  check_impossible_case();
  check_unknown_fields();
  check_unknown_op();
  check_deep_line();
  check_long_line();
  check_stacks();
  check_stdout();
  check_end("shutdown", [](Session& session) { session.say({{"op", "shutdown"}}); });
  check_end("end of stdin", [](Session& session) { session.group().close_stdin_when_written(); });
  check_busy_worker();
  for (int rank = 0; rank < config_.ranks; ++rank) check_throw(rank);
  for (int rank = 0; rank < config_.ranks; ++rank) check_kill(rank);
  return tally_;
}

Session* Conformance::warm() {
  if (warm_ && !warm_->lost()) return warm_.get();
  warm_.reset();
  auto session = std::make_unique<Session>(stage_, config_, "");
  if (!session->start().empty()) return nullptr;
  warm_ = std::move(session);
  return warm_.get();
}

std::optional<protocol::ResultEvent> Conformance::ask(const char* rule, const nlohmann::json& request,
                                                      const std::string& hint) {
  Session* const session = warm();
  if (session == nullptr) {
    tell(Verdict::untested, rule, kNoStart, "see ready");
    return std::nullopt;
  }
  const Answer answer = session->run(request);
  if (answer.trouble.empty() && answer.result) return answer.result;
  const std::string text =
      !answer.trouble.empty() ? answer.trouble : fmt::format("the worker refused the request: {}", *answer.refusal);
  tell(Verdict::broken, rule, text, hint_for(text, hint));
  warm_.reset();
  return std::nullopt;
}

// --- Start and end ---------------------------------------------------------------------------------------------------
void Conformance::check_start() {
  constexpr const char* kHint =
      "rank 0 says {\"event\":\"ready\",\"protocol\":1,\"world_size\":N,..} once, when every rank can run a case";
  auto session = std::make_unique<Session>(stage_, config_, "");
  if (const std::string why = session->start(); !why.empty()) {
    return tell(Verdict::broken, "ready", why, kHint);
  }
  tally_.started = true;
  // Lines before the pong were not asked for.
  ping_ms_ = session->ping();
  const protocol::ReadyEvent ready = session->ready();
  std::string surplus;
  for (const Incoming& incoming : session->heard()) {
    const auto* event = std::get_if<protocol::Event>(&incoming);
    if (event != nullptr && std::holds_alternative<protocol::ReadyEvent>(*event)) surplus = "ready twice";
    if (event != nullptr && std::holds_alternative<protocol::ResultEvent>(*event)) {
      surplus = "a result before any case";
    }
  }
  if (surplus.empty() && session->lost()) surplus = session->why_lost();
  if (!surplus.empty()) return tell(Verdict::broken, "ready", surplus, kHint);
  tell(Verdict::ok, "ready",
       fmt::format("{} on {}, {} after {}", count_of(static_cast<std::size_t>(ready.world_size), "rank"),
                   ready.device.empty() ? "a device without a name" : ready.device,
                   ready.worker.empty() ? "a worker without a name" : ready.worker,
                   format_duration(session->start_ms())));
  warm_ = std::move(session);
}

// Chatter between answers is no error, but a print that does not end its line swallows the answer behind it.
void Conformance::check_stdout() {
  constexpr const char* kRule = "stdout";
  constexpr const char* kHint =
      "before anything prints, rank 0 duplicates fd 1 for the protocol and points fd 1 at stderr: os.dup(1), "
      "os.dup2(2, 1)";
  Session* const session = warm();
  if (session == nullptr) return tell(Verdict::untested, kRule, kNoStart, "see ready");
  if (const std::string& line = session->group().last_chatter(); !line.empty()) {
    return tell(Verdict::broken, kRule,
                fmt::format("a line that is no message came between the answers: {}", protocol::cut_text(line, 200)),
                kHint);
  }
  const auto holders = holders_of(session->group().stdout_name(), session->processes());
  if (holders.empty()) {
    return tell(Verdict::untested, kRule, "this machine does not show who holds the pipe of the protocol",
                "look whether rank 0 points fd 1 at stderr");
  }
  // A shell that started the worker may have it as its fd 1, too.
  const bool set_apart = std::ranges::any_of(holders, [](const auto& holder) { return holder.second > 2; });
  const bool still_fd1 = std::ranges::any_of(holders, [&](const auto& holder) {
    return holder.second == 1 && std::ranges::any_of(holders, [&](const auto& other) {
             return other.first == holder.first && other.second > 2;
           });
  });
  if (!set_apart || still_fd1) {
    return tell(Verdict::broken, kRule, "fd 1 of rank 0 is the pipe of the protocol: a stray print goes there", kHint);
  }
  tell(Verdict::ok, kRule, "the protocol has a descriptor of its own, and nothing else was written to it");
}

void Conformance::check_end(const char* rule, const std::function<void(Session&)>& end) {
  Session* const session = warm();
  if (session == nullptr) return tell(Verdict::untested, rule, kNoStart, "see ready");
  end(*session);
  const auto began = Clock::now();
  const bool ended = session->wait([&] { return session->group().all_exited(); }, config_.prompt());
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  std::vector<int> alive;
  for (std::size_t rank = 0; rank < session->group().ranks().size(); ++rank) {
    if (!session->group().ranks()[rank].exit) alive.push_back(static_cast<int>(rank));
  }
  // Helpers that end with the ranks may take a moment longer.
  std::vector<ProcessInfo> left = session->processes();
  for (const auto limit = Clock::now() + kHelperLimit; ended && !left.empty() && Clock::now() < limit;) {
    session->wait([] { return false; }, milliseconds{10});
    left = session->processes();
  }
  warm_.reset();
  if (!ended) {
    return tell(Verdict::broken, rule,
                fmt::format("rank {} still lives {} later", fmt::join(alive, ", "), format_duration(ms)),
                "rank 0 ends the other ranks, then itself, within a second");
  }
  if (!left.empty()) {
    std::vector<pid_t> pids;
    pids.reserve(left.size());
    for (const ProcessInfo& process : left) pids.push_back(process.pid);
    return tell(Verdict::broken, rule,
                fmt::format("the ranks have ended, and process {} is left", fmt::join(pids, ", ")),
                "end what the ranks have started before they end themselves");
  }
  tell(Verdict::ok, rule, fmt::format("every rank ended within {}, and nothing is left", format_duration(ms)));
}

// --- Cases -----------------------------------------------------------------------------------------------------------
void Conformance::check_ping() {
  Session* const session = warm();
  if (session == nullptr) return tell(Verdict::untested, "ping", kNoStart, "see ready");
  if (!ping_ms_) {
    return tell(Verdict::broken, "ping", "no pong with the seq of the ping",
                "answer {\"op\":\"ping\",\"seq\":N} by {\"event\":\"pong\",\"seq\":N} at once");
  }
  if (!session->ping(true)) {
    const std::string why = session->lost() ? session->why_lost() : "no pong to a ping with \"all\":true";
    return tell(Verdict::broken, "ping", why, "after a second answer with the ranks that have answered");
  }
  tell(Verdict::ok, "ping", fmt::format("pong after {}", format_duration(*ping_ms_)));
}

void Conformance::check_case() {
  constexpr const char* kRule = "case";
  constexpr const char* kHint = "a run is answered by started, then by one result, both with the seq of the run";
  std::optional<protocol::ResultEvent> result;
  std::size_t tried = 0;
  for (const Case& c : candidates(config_.ranks)) {
    ++tried;
    Session* const session = warm();
    if (session == nullptr) return tell(Verdict::untested, kRule, kNoStart, "see ready");
    const nlohmann::json request = request_of(c, session->ready().capabilities, config_.timeout);
    const Answer answer = session->run(request);
    std::string wrong = answer.trouble;
    if (wrong.empty() && answer.refusal) {
      wrong = fmt::format("the worker refused the request: {}", *answer.refusal);
    }
    if (wrong.empty()) wrong = contradiction_in(*answer.result, config_.ranks, /*cancelled=*/false);
    if (wrong.empty() && answer.result->outcome != CaseOutcome::pass && answer.result->reason.empty()) {
      wrong = fmt::format("a {} without a reason", to_string(answer.result->outcome));
    }
    const bool ran = answer.result && answer.result->outcome != CaseOutcome::skip;
    if (wrong.empty() && ran && !answer.started) wrong = "a result without started before it";
    if (!wrong.empty()) {
      warm_.reset();
      tell(Verdict::broken, kRule, wrong, hint_for(wrong, kHint));
      return tell(Verdict::untested, "figures", kNoCase, "see case");
    }
    case_request_ = request;
    case_outcome_ = answer.result->outcome;
    result = answer.result;
    if (ran) break;
  }
  const std::string what = case_request_.at("id").get<std::string>();
  const std::string& reason = result->reason;
  if (case_outcome_ == CaseOutcome::pass) {
    tell(Verdict::ok, kRule, fmt::format("started, then a pass of {}", what));
  } else if (case_outcome_ == CaseOutcome::skip) {
    tell(Verdict::untested, kRule, fmt::format("each of {} cases is a skip: {}", tried, reason),
         "cp-pool submit runs a case that the worker knows");
  } else {
    tell(Verdict::broken, kRule, fmt::format("{} ends as {}: {}", what, to_string(case_outcome_), reason),
         "cp-pool doctor --worker CMD runs much the same case, and shows more of it");
  }
  check_figures(*result);
}

void Conformance::check_figures(const protocol::ResultEvent& result) {
  constexpr const char* kRule = "figures";
  if (result.outcome != CaseOutcome::pass) return tell(Verdict::untested, kRule, "no case has passed", "see case");
  const bool promised = warm_ && warm_->ready().capabilities.value("figures", nlohmann::json()) == true;
  if (const std::string why = refutation_of_pass(result, config_.ranks, promised); !why.empty()) {
    return tell(Verdict::broken, kRule, why, "ok = error <= bound; one entry of ranks for each rank");
  }
  CaseFinished event;
  event.outcome = CaseOutcome::pass;
  event.c.cp_size = config_.ranks;
  event.checks = result.checks;
  if (is_unverified_by_figures(event)) {
    return tell(Verdict::absent, kRule, "a pass without error and bound of every rank is marked in every report",
                "give checks with error and bound, and \"figures\":true in the capabilities of ready");
  }
  if (!promised) {
    return tell(Verdict::absent, kRule, "error and bound of every rank, but no promise of them",
                "\"figures\":true in the capabilities of ready: a pass that lacks them is then an error");
  }
  tell(Verdict::ok, kRule,
       fmt::format("{}, each with an error within its bound", count_of(result.checks.size(), "check")));
}

void Conformance::check_fences() {
  constexpr const char* kRule = "fences";
  if (case_request_.is_null()) return tell(Verdict::untested, kRule, kNoCase, "see case");
  const auto result = ask(kRule, case_request_, "see case");
  if (!result) return;
  WorkerGroup& group = warm_->group();
  warm_->wait([&] { return group.tails_complete() || warm_->lost(); }, kFenceLimit);
  std::vector<int> without;
  for (std::size_t rank = 0; rank < group.ranks().size(); ++rank) {
    if (!group.ranks()[rank].tail.complete()) without.push_back(static_cast<int>(rank));
  }
  if (without.empty()) return tell(Verdict::ok, kRule, "every rank wrote the fence of its case");
  const bool none = without.size() == group.ranks().size();
  tell(none ? Verdict::absent : Verdict::broken, kRule,
       fmt::format("no fence of the case on stderr of rank {}", fmt::join(without, ", ")),
       R"(each rank writes "\n[CP_POOL_FENCE] <seq>\n" to stderr, in one write, before it reports)");
}

void Conformance::check_impossible_case() {
  constexpr const char* kRule = "impossible case";
  constexpr const char* kHint = "skip what you do not know, with a reason, or say error: a pass is believed";
  if (case_request_.is_null()) return tell(Verdict::untested, kRule, kNoCase, "see case");
  Session* const session = warm();
  if (session == nullptr) return tell(Verdict::untested, kRule, kNoStart, "see ready");
  nlohmann::json request = case_request_;
  request["id"] = "conformance/impossible";
  request["case"]["comm"] = "by_carrier_pigeon";
  const Answer answer = session->run(request);
  if (!answer.trouble.empty()) {
    warm_.reset();
    return tell(Verdict::broken, kRule, answer.trouble, hint_for(answer.trouble, kHint));
  }
  if (answer.result && (answer.result->outcome == CaseOutcome::pass || answer.result->outcome == CaseOutcome::fail)) {
    return tell(Verdict::broken, kRule,
                fmt::format("a case with \"comm\":\"by_carrier_pigeon\" is a {}", to_string(answer.result->outcome)),
                kHint);
  }
  if (answer.result && !answer.result->healthy) warm_.reset();
  tell(Verdict::ok, kRule,
       answer.refusal ? "it is refused" : fmt::format("it is {}", to_string(answer.result->outcome)));
}

bool Conformance::expect_same_answer(const char* rule, const nlohmann::json& request, const std::string& sent,
                                     const std::string& hint) {
  if (case_request_.is_null()) {
    tell(Verdict::untested, rule, kNoCase, "see case");
    return true;
  }
  const auto result = ask(rule, request, hint);
  if (!result) return false;
  if (result->outcome != case_outcome_) {
    tell(Verdict::broken, rule,
         fmt::format("the case is {} with {}, and {} without: {}", to_string(result->outcome), sent,
                     to_string(case_outcome_), result->reason),
         hint);
    return false;
  }
  tell(Verdict::ok, rule, fmt::format("the answer with {} is the same", sent));
  return true;
}

void Conformance::check_unknown_fields() {
  nlohmann::json request = case_request_;
  if (!request.is_null()) {
    request["x_conformance"] = {{"a", {1, nullptr, "b"}}};
    request["options"]["x_conformance"] = true;
  }
  takes_unknown_fields_ =
      expect_same_answer("unknown fields", request, "fields of a later version", "ignore fields that you do not know");
}

void Conformance::check_unknown_op() {
  constexpr const char* kRule = "unknown op";
  constexpr const char* kHint =
      "answer {\"event\":\"protocol_error\",\"seq\":N,\"message\":..} to an op that you do not know, and go on";
  Session* const session = warm();
  if (session == nullptr) return tell(Verdict::untested, kRule, kNoStart, "see ready");
  const std::int64_t seq = session->next_seq();
  session->say({{"op", "x_conformance"}, {"seq", seq}});
  const auto told = [&] { return session->heard_refusal(seq) || session->heard_refusal(std::nullopt); };
  session->ping();
  session->wait([&] { return told() || session->lost(); }, milliseconds{500});
  if (session->lost()) return tell(Verdict::broken, kRule, session->why_lost(), kHint);
  if (!told()) return tell(Verdict::broken, kRule, "no protocol_error", kHint);
  tell(Verdict::ok, kRule, "a protocol_error, and the worker goes on");
}

void Conformance::check_deep_line() {
  if (!takes_unknown_fields_) return tell(Verdict::untested, "deep line", kNoUnknownFields, "see unknown fields");
  nlohmann::json request = case_request_;
  if (!request.is_null()) {
    nlohmann::json deep = nlohmann::json::array();
    for (int i = 1; i < kDepth; ++i) deep = nlohmann::json::array({std::move(deep)});
    request["x_conformance"] = std::move(deep);
  }
  expect_same_answer("deep line", request, fmt::format("a field nested {} deep", kDepth),
                     "a line may be nested 64 deep");
}

void Conformance::check_long_line() {
  if (!takes_unknown_fields_) return tell(Verdict::untested, "long line", kNoUnknownFields, "see unknown fields");
  nlohmann::json request = case_request_;
  if (!request.is_null()) request["x_conformance"] = std::string(kLongField, 'x');
  expect_same_answer("long line", request, "a line of nearly 16 MiB",
                     "a line may hold 16 MiB: read until its newline, whatever a buffer holds");
}

void Conformance::check_stacks() {
  constexpr const char* kRule = "stacks";
  constexpr const char* kHint =
      "at a deadline each rank gets SIGUSR2, whose default action kills it: write the stack of every thread to stderr "
      "(Python: faulthandler.register(signal.SIGUSR2))";
  Session* const session = warm();
  if (session == nullptr) return tell(Verdict::untested, kRule, kNoStart, "see ready");
  WorkerGroup& group = session->group();
  group.begin_case(session->next_seq());
  group.signal_ranks(SIGUSR2);
  const auto silent = [&] {
    std::vector<int> out;
    for (const StderrTail& tail : group.tails()) {
      if (tail.text.empty()) out.push_back(tail.rank);
    }
    return out;
  };
  session->wait([&] { return session->lost() || silent().empty(); }, kStackLimit);
  if (session->lost()) return tell(Verdict::absent, kRule, session->why_lost(), kHint);
  if (const auto ranks = silent(); !ranks.empty()) {
    return tell(Verdict::absent, kRule, fmt::format("rank {} says nothing at SIGUSR2", fmt::join(ranks, ", ")), kHint);
  }
  tell(Verdict::ok, kRule, "every rank writes to stderr at SIGUSR2, and goes on");
}

}  // namespace cp_pool::conformance
