// The rules for the answer to a case, and for requests that a worker may not know or that are large.
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "driver/conformance/conformance.h"
#include "driver/core/figures.h"
#include "driver/core/payload.h"
#include "driver/report/text_format.h"

namespace cp_pool::conformance {

namespace {

constexpr milliseconds kFenceLimit{1000};

// Small cases with common features, so that most workers can run at least one.
std::vector<Case> candidates(int ranks) {
  std::vector<Case> out;
  for (const CommType comm : kValues<CommType>) {
    if (!facts_of(comm).takes_size({ranks})) continue;
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
    Case common = small;  // for kernels that support only common shapes
    common.model = "common";
    common.dtype = DType::bf16;
    common.causal = true;
    common.seqlen_q = common.seqlen_kv = 256;
    common.head_dim_qk = common.head_dim_v = 64;
    out.insert(out.end(), {small, common});
  }
  return out;
}

nlohmann::json request_of(const Payload& payload, std::string id, const nlohmann::json& capabilities,
                          milliseconds timeout) {
  protocol::RunRequest request;
  request.id = std::move(id);
  payload->put_into(request, capabilities);
  request.timeout_ms = timeout.count();
  return nlohmann::json::parse(protocol::encode(protocol::Request{request}));
}

}  // namespace

void Conformance::check_case() {
  begin("case", "a run is answered by started, then by one result, both with the seq of the run");
  std::optional<protocol::ResultEvent> result;
  std::size_t tried = 0;
  for (const Case& c : candidates(ranks_)) {
    ++tried;
    Session& session = warm();
    const nlohmann::json request = request_of(c, fmt::format("conformance/{}/{}", c.model, to_string(c.comm)),
                                              session.ready().capabilities, config_.timeout);
    const Answer answer = session.run(request);
    std::string wrong = answer.trouble;
    if (wrong.empty() && answer.refusal) {
      wrong = fmt::format("the worker refused the request: {}", *answer.refusal);
    }
    if (wrong.empty()) wrong = contradiction_in(*answer.result, ranks_, /*cancelled=*/false);
    if (wrong.empty() && answer.result->outcome != CaseOutcome::pass && answer.result->reason.empty()) {
      wrong = fmt::format("a {} without a reason", to_string(answer.result->outcome));
    }
    const bool ran = answer.result && answer.result->outcome != CaseOutcome::skip;
    if (wrong.empty() && ran && !answer.started) wrong = "a result without started before it";
    if (!wrong.empty()) {
      warm_.reset();
      tell_trouble(wrong);
      begin("figures", "see case");
      return tell(untested, kNoCase);
    }
    case_request_ = request;
    case_outcome_ = answer.result->outcome;
    result = answer.result;
    if (ran) break;
  }
  const std::string what = case_request_.at("id").get<std::string>();
  const std::string& reason = result->reason;
  if (case_outcome_ == CaseOutcome::pass) {
    tell(ok, fmt::format("started, then a pass of {}", what));
  } else if (case_outcome_ == CaseOutcome::skip) {
    tell(untested, fmt::format("each of {} cases is a skip: {}", tried, reason),
         "cp-pool submit runs a case that the worker knows");
  } else {
    tell(broken, fmt::format("{} ends as {}: {}", what, to_string(case_outcome_), reason),
         "cp-pool doctor --worker CMD runs much the same case, and shows more of it");
  }
  check_figures(*result);
}

void Conformance::check_figures(const protocol::ResultEvent& result) {
  begin("figures", "ok = error <= bound; one entry of ranks for each rank");
  if (result.outcome != CaseOutcome::pass) return tell(untested, "no case has passed", "see case");
  const bool promised = warm_ && warm_->ready().capabilities.value("figures", nlohmann::json()) == true;
  if (const std::string why = refutation_of_pass(result, ranks_, promised); !why.empty()) {
    return tell(broken, why);
  }
  CaseFinished event;
  event.outcome = CaseOutcome::pass;
  Case of_ranks;
  of_ranks.cp_size = ranks_;
  event.payload = of_ranks;
  event.checks = result.checks;
  if (is_unverified_by_figures(event)) {
    return tell(absent, "a pass without error and bound of every rank is marked in every report",
                "give checks with error and bound, and \"figures\":true in the capabilities of ready");
  }
  if (!promised) {
    return tell(absent, "error and bound of every rank, but no promise of them",
                "\"figures\":true in the capabilities of ready: a pass that lacks them is then an error");
  }
  tell(ok, fmt::format("{}, each with an error within its bound", count_of(result.checks.size(), "check")));
}

void Conformance::check_fences() {
  begin("fences", "see case");
  ask(known_case());
  WorkerGroup& group = warm_->group();
  warm_->wait([&] { return group.facts().tails_complete || warm_->lost(); }, kFenceLimit);
  std::vector<int> without;
  for (std::size_t rank = 0; rank < group.ranks().size(); ++rank) {
    if (!group.ranks()[rank].tail.complete()) without.push_back(static_cast<int>(rank));
  }
  if (without.empty()) return tell(ok, "every rank wrote the fence of its case");
  const bool none = without.size() == group.ranks().size();
  tell(none ? absent : broken, fmt::format("no fence of the case on stderr of rank {}", fmt::join(without, ", ")),
       R"(each rank writes "\n[CP_POOL_FENCE] <seq>\n" to stderr, in one write, before it reports)");
}

void Conformance::check_not_judged(const nlohmann::json& request, const std::string& what) {
  const Answer answer = warm_->run(request);
  if (!answer.trouble.empty()) {
    warm_.reset();
    return tell_trouble(answer.trouble);
  }
  if (answer.result && !answer.result->healthy) warm_.reset();
  const bool judged =
      answer.result && (answer.result->outcome == CaseOutcome::pass || answer.result->outcome == CaseOutcome::fail);
  const std::string seen =
      answer.refusal ? "is refused" : fmt::format("is {}{}", judged ? "a " : "", to_string(answer.result->outcome));
  tell(judged ? broken : ok, fmt::format("{} {}", what, seen));
}

void Conformance::check_impossible_case() {
  begin("impossible case", "skip what you do not know, with a reason, or say error: a pass is believed");
  nlohmann::json request = known_case();
  warm();
  request["id"] = "conformance/impossible";
  request["case"]["comm"] = "by_carrier_pigeon";
  check_not_judged(request, "a case with \"comm\":\"by_carrier_pigeon\"");
}

void Conformance::check_unknown_function() {
  begin("unknown function", "say error to a call of a function that there is not: a pass is believed");
  const nlohmann::json& capabilities = warm().ready().capabilities;
  if (capabilities.value("calls", nlohmann::json()) != true) return;
  known_case();
  const Payload call(Call{.function = "cp_pool.conformance:no_such_function", .cp_size = ranks_});
  check_not_judged(request_of(call, "conformance/call", capabilities, config_.timeout),
                   "a call of an unknown function");
}

// --- Requests that a worker may not know, or that are large ---

void Conformance::expect_same_answer(const nlohmann::json& request, const std::string& sent) {
  const protocol::ResultEvent result = ask(request);
  if (result.outcome != case_outcome_) {
    tell(broken, fmt::format("the case is {} with {}, and {} without: {}", to_string(result.outcome), sent,
                             to_string(case_outcome_), result.reason));
    throw Told{};
  }
  tell(ok, fmt::format("the answer with {} is the same", sent));
}

void Conformance::check_unknown_fields() {
  begin("unknown fields", "ignore fields that you do not know");
  takes_unknown_fields_ = case_request_.is_null();
  nlohmann::json request = known_case();
  request["x_conformance"] = {{"a", {1, nullptr, "b"}}};
  request["options"]["x_conformance"] = true;
  expect_same_answer(request, "fields of a later version");
  takes_unknown_fields_ = true;
}

void Conformance::check_unknown_op() {
  begin("unknown op",
        "answer {\"event\":\"protocol_error\",\"seq\":N,\"message\":..} to an op that you do not know, and go on");
  Session& session = warm();
  const std::int64_t seq = session.next_seq();
  session.say({{"op", "x_conformance"}, {"seq", seq}});
  const auto told = [&] {
    return session.heard<protocol::ProtocolErrorEvent>(seq) ||
           session.heard<protocol::ProtocolErrorEvent>(std::nullopt);
  };
  session.ping();
  session.wait([&] { return told() || session.lost(); }, milliseconds{500});
  if (session.lost()) return tell(broken, session.why_lost());
  if (!told()) return tell(broken, "no protocol_error");
  tell(ok, "a protocol_error, and the worker goes on");
}

void Conformance::check_large_line(nlohmann::json field, const std::string& sent) {
  if (!takes_unknown_fields_) {
    return tell(untested, "it would take a field that the worker does not know", "see unknown fields");
  }
  nlohmann::json request = known_case();
  request["x_conformance"] = std::move(field);
  expect_same_answer(request, sent);
}

}  // namespace cp_pool::conformance
