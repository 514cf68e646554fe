#include "driver/core/payload.h"

#include <gmock/gmock.h>

#include "cases/case_error.h"
#include "cases/case_json.h"
#include "driver/testing/attention.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;

Payload scaled_case() {
  Case c;
  c.input_scale = 10;
  return c;
}

nlohmann::json told(const Payload& payload, const nlohmann::json& capabilities) {
  protocol::RunRequest request;
  payload->put_into(request, capabilities);
  protocol::PrepareRequest prepare;
  EXPECT_TRUE(payload->put_into(prepare, capabilities));
  EXPECT_EQ(prepare.case_json, request.case_json);
  EXPECT_EQ(prepare.lengths, request.lengths);
  return request.case_json;
}

TEST(Payload, LeavesOutWhatAWorkerDoesNotList) {
  nlohmann::json of_version_1 = to_json(Case{});
  for (const char* const newer : {"inner", "mask", "softcap", "fp8", "input_scale", "score_offset", "strided",
                                  "replicated", "all_queries", "group", "group_ranks", "group_lengths"}) {
    of_version_1.erase(newer);
  }
  for (const nlohmann::json& capabilities :
       {nlohmann::json::object(), nlohmann::json{{"case_fields", nlohmann::json::array()}},
        nlohmann::json{{"case_fields", {"another"}}}, nlohmann::json{{"case_fields", "input_scale"}}}) {
    EXPECT_EQ(told(Payload{}, capabilities), of_version_1) << capabilities;
    EXPECT_EQ(Payload {} -> unknown_to_worker(capabilities), "") << capabilities;
    EXPECT_EQ(scaled_case()->unknown_to_worker(capabilities),
              "the worker does not know the case field input_scale (here 10): its capabilities.case_fields does not "
              "list it")
        << capabilities;
  }
}

TEST(Payload, TellsAWorkerWhatItLists) {
  const nlohmann::json capabilities{
      {"case_fields",
       {"another", "inner", "mask", "softcap", "fp8", "input_scale", "score_offset", "strided", "replicated",
        "all_queries", "group", "group_ranks", "group_lengths"}}};
  EXPECT_EQ(told(Payload{}, capabilities), nlohmann::json(to_json(Case{})));
  EXPECT_EQ(told(scaled_case(), capabilities), nlohmann::json(to_json(*scaled_case()->attention())));
  EXPECT_EQ(scaled_case()->unknown_to_worker(capabilities), "");
}

TEST(Payload, IsReadFromItsJson) {
  Case c;
  c.cp_size = 2;
  c.group = 2;
  c.batch = 1;
  c.seqlen_q = c.seqlen_kv = 16;
  c.heads = c.kv_heads = 1;
  c.head_dim_qk = c.head_dim_v = 8;
  const Payload payload = c;
  EXPECT_EQ(Payload::read(payload->json(), "events.jsonl"), payload);
  EXPECT_EQ(*Payload::read(payload->json(), "events.jsonl")->attention(), c);
  EXPECT_EQ(payload->ranks(), 4);
  EXPECT_FALSE(payload == Payload{});
  nlohmann::json wrong = payload->json();
  wrong["comm"] = "post";
  EXPECT_THAT([&] { Payload::read(wrong, "events.jsonl"); },
              ::testing::ThrowsMessage<CaseError>(HasSubstr("events.jsonl")));
}

TEST(Payload, OfAnItemIsNotChangedThroughACopy) {
  const Payload first = scaled_case();
  Payload copy = first;
  test::attention(copy).heads = 3;
  EXPECT_EQ(copy->attention()->heads, 3);
  EXPECT_EQ(first, scaled_case());
}

TEST(Payload, MayBeACall) {
  const Call call{.function = "tests.sums:total", .arguments = {{"n", 3}}, .cp_size = 4};
  const Payload payload = call;
  EXPECT_STREQ(payload->key(), "call");
  EXPECT_STREQ(Payload {} -> key(), "case");
  EXPECT_EQ(Payload::read(payload->json(), "events.jsonl"), payload);
  EXPECT_FALSE(payload == Payload{});
  EXPECT_EQ(payload->ranks(), 4);
  EXPECT_EQ(payload->attention(), nullptr);
  EXPECT_EQ(payload->suite(), "tests.sums");
  EXPECT_EQ(payload->model(), "total");
  EXPECT_EQ(payload->column(), "4 ranks");
  EXPECT_FALSE(payload->has_figures());
  protocol::RunRequest request;
  request.options.diagnosis_ms = 5000;
  payload->put_into(request, {{"calls", true}});
  EXPECT_EQ(request.call, (nlohmann::json{{"function", "tests.sums:total"}, {"arguments", {{"n", 3}}}}));
  EXPECT_TRUE(request.case_json.is_null());
  EXPECT_FALSE(request.options.diagnosis_ms);
  protocol::PrepareRequest prepare;
  EXPECT_FALSE(payload->put_into(prepare, {{"calls", true}}));
}

TEST(Payload, ACallGoesOnlyToAWorkerThatRunsCalls) {
  const Payload payload = Call{.function = "m:f"};
  EXPECT_EQ(payload->unknown_to_worker({{"calls", true}}), "");
  for (const nlohmann::json& capabilities :
       {nlohmann::json::object(), nlohmann::json{{"calls", false}}, nlohmann::json{{"calls", "true"}}}) {
    EXPECT_THAT(payload->unknown_to_worker(capabilities), HasSubstr("runs no calls")) << capabilities;
  }
}

protocol::PerfResult measured(double ms, std::optional<double> one_rank_ms) {
  protocol::PerfResult out;
  out.step_ms = {.median = ms, .min = ms / 2, .max = ms * 2};
  if (one_rank_ms) out.one_rank_ms = StepMs{.median = *one_rank_ms, .min = 0, .max = 1e9};
  return out;
}

// 2 sequences of 8 tokens, 4 heads of dimension 16, not causal.
Case dense_case() {
  Case c;
  c.batch = 2;
  c.seqlen_q = c.seqlen_kv = 8;
  c.heads = c.kv_heads = 4;
  c.head_dim_qk = c.head_dim_v = 16;
  c.cp_size = 2;
  c.dtype = DType::bf16;
  return c;
}

TEST(PerfFigures, CountTheOperationsOfVisiblePairs) {
  constexpr double kPairs = 2 * 8 * 8 * 4;
  constexpr double kSeconds = 2e-3;
  // Two products forward and five backward, of one multiply and one add each.
  const double of_a_rank = kPairs * (2 + 5) * 2 * 16 / 2;
  EXPECT_DOUBLE_EQ(Payload(dense_case())->figures(measured(2, 3)).tflops, of_a_rank / kSeconds / 1e12);
  Case forward = dense_case();
  forward.training = false;
  EXPECT_DOUBLE_EQ(Payload(forward)->figures(measured(2, 3)).tflops, of_a_rank * 2 / 7 / kSeconds / 1e12);
}

TEST(PerfFigures, HaveTheBytesThatTheWorkerCounted) {
  for (const std::int64_t bytes : {0, 5000}) {
    protocol::PerfResult counted = measured(2, 3);
    counted.bytes_sent = bytes;
    const PerfFigures figures = Payload(dense_case())->figures(counted);
    EXPECT_EQ(figures.bytes_sent, bytes);
    EXPECT_DOUBLE_EQ(figures.gbytes_per_s, static_cast<double>(bytes) / 2e-3 / 1e9);
  }
}

TEST(PerfFigures, ExpectTheBytesThatAWorkerDoesNotCount) {
  // Forward: K and V of 8 tokens. Backward: the other rank's gradients of them, in fp32.
  constexpr std::int64_t kNumbers = 2 * 8 * 4 * 16;
  const PerfFigures figures = Payload(dense_case())->figures(measured(2, 3));
  EXPECT_EQ(figures.bytes_sent, kNumbers * 2 + kNumbers * 4);
  EXPECT_DOUBLE_EQ(figures.gbytes_per_s, static_cast<double>(*figures.bytes_sent) / 2e-3 / 1e9);
}

TEST(PerfFigures, EfficiencyIsTheShareOfTheTimeThatPerfectSharingWouldTake) {
  EXPECT_DOUBLE_EQ(*Payload(dense_case())->figures(measured(2, 3)).efficiency, 0.75);
  EXPECT_FALSE(Payload(dense_case())->figures(measured(2, std::nullopt)).efficiency);
}

TEST(PerfFigures, HaveNoRatioToATimeOfZero) {
  EXPECT_FALSE(Payload(dense_case())->figures(measured(0, 3)).efficiency);
  PerfFigures figures = Payload(dense_case())->figures(measured(2, 3));
  figures.baseline_ms = 0;
  EXPECT_FALSE(figures.ratio());
}

}  // namespace
}  // namespace cp_pool
