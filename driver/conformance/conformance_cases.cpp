// The rules for the answer to a case.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/case_json.h"
#include "cases/case_names.h"
#include "cases/comm_facts.h"
#include "cases/lengths.h"
#include "driver/conformance/conformance.h"
#include "driver/core/figures.h"
#include "driver/core/payload.h"
#include "driver/report/text_format.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool::conformance {

namespace {

constexpr milliseconds kFenceLimit{1000};

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

nlohmann::json request_of(const Case& c, const nlohmann::json& capabilities, milliseconds timeout) {
  protocol::RunRequest request;
  request.id = fmt::format("conformance/{}/{}", c.model, to_string(c.comm));
  Payload(c)->put_into(request, capabilities);
  request.timeout_ms = timeout.count();
  return nlohmann::json::parse(protocol::encode(protocol::Request{request}));
}

}  // namespace

void Conformance::check_case() {
  constexpr const char* kRule = "case";
  constexpr const char* kHint = "a run is answered by started, then by one result, both with the seq of the run";
  std::optional<protocol::ResultEvent> result;
  std::size_t tried = 0;
  for (const Case& c : candidates(config_.ranks)) {
    ++tried;
    Session* const session = warm_for(kRule);
    if (session == nullptr) return;
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
  Case of_ranks;
  of_ranks.cp_size = config_.ranks;
  event.payload = of_ranks;
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
  if (!has_case(kRule)) return;
  const auto result = ask(kRule, case_request_, "see case");
  if (!result) return;
  WorkerGroup& group = warm_->group();
  warm_->wait([&] { return group.facts().tails_complete || warm_->lost(); }, kFenceLimit);
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
  if (!has_case(kRule)) return;
  Session* const session = warm_for(kRule);
  if (session == nullptr) return;
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

void Conformance::check_unknown_function() {
  constexpr const char* kRule = "unknown function";
  constexpr const char* kHint = "say error to a call of a function that there is not: a pass is believed";
  Session* const session = warm_for(kRule);
  if (session == nullptr || session->ready().capabilities.value("calls", nlohmann::json()) != true) return;
  if (case_request_.is_null()) return tell(Verdict::untested, kRule, kNoCase, "see case");
  protocol::RunRequest request;
  request.id = "conformance/call";
  request.timeout_ms = config_.timeout.count();
  Payload(Call{.function = "cp_pool.conformance:no_such_function", .cp_size = config_.ranks})
      ->put_into(request, session->ready().capabilities);
  const Answer answer = session->run(nlohmann::json::parse(protocol::encode(protocol::Request{request})));
  if (!answer.trouble.empty()) {
    warm_.reset();
    return tell(Verdict::broken, kRule, answer.trouble, hint_for(answer.trouble, kHint));
  }
  const bool wrong =
      answer.result && (answer.result->outcome == CaseOutcome::pass || answer.result->outcome == CaseOutcome::fail);
  if (answer.result && !answer.result->healthy) warm_.reset();
  const std::string what = answer.refusal ? "is refused" : fmt::format("is {}", to_string(answer.result->outcome));
  tell(wrong ? Verdict::broken : Verdict::ok, kRule, fmt::format("a call of an unknown function {}", what),
       wrong ? kHint : "");
}

}  // namespace cp_pool::conformance
