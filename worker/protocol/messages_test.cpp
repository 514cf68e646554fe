#include "worker/protocol/messages.h"

#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool::protocol {
namespace {

using nlohmann::json;
using testing::HasSubstr;

template <typename T>
T request_round_trip(const T& message) {
  return std::get<T>(parse_request(encode(Request{message})));
}
template <typename T>
T event_round_trip(const T& message) {
  return std::get<T>(parse_event(encode(Event{message})));
}

ResultEvent result_event() {
  ResultEvent event;
  event.seq = 1;
  return event;
}

std::string request_error(const std::string& text) {
  try {
    parse_request(text);
  } catch (const ProtocolError& e) {
    return e.what();
  }
  return "no error";
}
std::string event_error(const std::string& text) {
  try {
    parse_event(text);
  } catch (const ProtocolError& e) {
    return e.what();
  }
  return "no error";
}

std::string phase_of(const std::string& escaped) {
  return std::get<ProgressEvent>(parse_event(R"({"event":"progress","seq":1,"phase":")" + escaped + "\"}")).phase;
}

TEST(Requests, RunRoundTrips) {
  RunRequest sent{.seq = 12,
                  .id = "a/b",
                  .case_json = {{"cp_size", 2}},
                  .call = {},
                  .timeout_ms = 5000,
                  .options = {.dump_dir = "/tmp/x"}};
  RunRequest got = request_round_trip(sent);
  EXPECT_EQ(got.seq, 12);
  EXPECT_EQ(got.id, "a/b");
  EXPECT_EQ(got.case_json, sent.case_json);
  EXPECT_EQ(got.timeout_ms, 5000);
  EXPECT_EQ(got.options.dump_dir, "/tmp/x");
  EXPECT_TRUE(got.options.reference_cache);
  sent.options.dump_dir.reset();
  sent.options.reference_cache = false;
  EXPECT_EQ(request_round_trip(sent).options.dump_dir, std::nullopt);
  EXPECT_FALSE(request_round_trip(sent).options.reference_cache);
}

TEST(Requests, RunMayAskForTimes) {
  RunRequest sent;
  sent.case_json = {{"cp_size", 2}};
  EXPECT_FALSE(request_round_trip(sent).options.perf);
  sent.options.perf = PerfRequest{.warmup = 0, .iterations = 7};
  const RunRequest got = request_round_trip(sent);
  ASSERT_TRUE(got.options.perf);
  EXPECT_EQ(got.options.perf->warmup, 0);
  EXPECT_EQ(got.options.perf->iterations, 7);
  const auto with = [](const char* perf) {
    return request_error(fmt::format(R"({{"op":"run","seq":1,"case":{{}},"options":{{"perf":{}}}}})", perf));
  };
  EXPECT_THAT(with(R"({"warmup":-1})"), HasSubstr("warmup -1"));
  EXPECT_THAT(with(R"({"iterations":0})"), HasSubstr("iterations 0"));
  EXPECT_THAT(with("3"), HasSubstr("perf"));
}

TEST(Requests, RunMayMultiplyTheBounds) {
  RunRequest sent;
  sent.case_json = {{"cp_size", 2}};
  EXPECT_FALSE(json::parse(encode(sent)).at("options").contains("bound_factor"));
  sent.options.bound_factor = 2.5;
  EXPECT_EQ(request_round_trip(sent).options.bound_factor, 2.5);
  EXPECT_THAT(request_error(R"({"op":"run","seq":1,"case":{},"options":{"bound_factor":0}})"),
              HasSubstr("bound_factor 0 is not positive"));
}

TEST(Requests, RunMayAskForADiagnosis) {
  RunRequest sent;
  sent.case_json = {{"cp_size", 2}};
  EXPECT_FALSE(json::parse(encode(sent)).at("options").contains("diagnosis_ms"));
  sent.options.diagnosis_ms = 5000;
  EXPECT_EQ(request_round_trip(sent).options.diagnosis_ms, 5000);
  EXPECT_THAT(request_error(R"({"op":"run","seq":1,"case":{},"options":{"diagnosis_ms":0}})"),
              HasSubstr("diagnosis_ms 0 is not positive"));
}

TEST(Requests, LengthsRoundTripAndMayBeMissing) {
  const json lengths{{"valid_q", {3, 5}}, {"padded_q", {4, 8}}, {"valid_kv", {3, 5}}, {"padded_kv", {4, 8}}};
  RunRequest sent;
  sent.case_json = {{"cp_size", 2}};
  EXPECT_FALSE(json::parse(encode(sent)).contains("lengths"));
  EXPECT_TRUE(request_round_trip(sent).lengths.empty());
  sent.lengths = lengths;
  EXPECT_EQ(request_round_trip(sent).lengths, lengths);
  PrepareRequest prepare;
  prepare.case_json = sent.case_json;
  EXPECT_TRUE(request_round_trip(prepare).lengths.empty());
  prepare.lengths = lengths;
  EXPECT_EQ(request_round_trip(prepare).lengths, lengths);
  EXPECT_THAT(request_error(R"({"op":"run","seq":1,"case":{},"lengths":[4]})"), HasSubstr("lengths"));
}

TEST(Requests, OthersRoundTrip) {
  EXPECT_EQ(request_round_trip(PrepareRequest{13, {{"cp_size", 2}}}).case_json, (json{{"cp_size", 2}}));
  EXPECT_EQ(request_round_trip(CancelRequest{14}).seq, 14);
  EXPECT_EQ(request_round_trip(PingRequest{15, true}).seq, 15);
  EXPECT_TRUE(request_round_trip(PingRequest{15, true}).all);
  EXPECT_FALSE(request_round_trip(PingRequest{15, false}).all);
  request_round_trip(ShutdownRequest{});
}

TEST(Requests, TakeDefaultsAndIgnoreUnknownFields) {
  const auto run = std::get<RunRequest>(parse_request(R"({"op":"run","seq":1,"case":{},"future":[1]})"));
  EXPECT_EQ(run.timeout_ms, 90000);
  EXPECT_EQ(run.options.dump_dir, std::nullopt);
  EXPECT_TRUE(run.options.reference_cache);
}

TEST(Requests, ErrorsNameTheFieldAndWhatCame) {
  EXPECT_THAT(request_error("{"), HasSubstr("not JSON"));
  EXPECT_THAT(request_error("[]"), HasSubstr("expected an object, got []"));
  EXPECT_EQ(request_error("{}"), R"(op: "op" is missing)");
  EXPECT_EQ(request_error(R"({"op":"jump"})"), R"(unknown op "jump")");
  EXPECT_EQ(request_error(R"({"op":"run","case":{}})"), R"(run: "seq" is missing)");
  EXPECT_EQ(request_error(R"({"op":"run","seq":1.5,"case":{}})"), R"(run: "seq": expected a 64-bit integer, got 1.5)");
  EXPECT_THAT(request_error(R"({"op":"run","seq":9223372036854775808,"case":{}})"), HasSubstr("64-bit integer"));
  EXPECT_EQ(request_error(R"({"op":"run","seq":1})"), R"(run: "case" is missing)");
  EXPECT_EQ(request_error(R"({"op":"run","seq":1,"case":3})"), R"(run: "case": expected an object, got 3)");
  EXPECT_THAT(request_error(R"({"op":"run","seq":1,"case":{},"timeout_ms":0})"), HasSubstr("timeout_ms 0"));
  EXPECT_THAT(request_error(R"({"op":"run","seq":1,"case":{},"options":{"dump_dir":3}})"), HasSubstr("dump_dir"));
  EXPECT_EQ(request_error(R"({"op":"run","seq":1,"case":{},"options":{"reference_cache":0}})"),
            R"(run: options: "reference_cache": expected true or false, got 0)");
}

TEST(Requests, AreNotNestedDeeperThanStackAllows) {
  const auto nested = [](std::size_t depth) {
    return R"({"op":"run","seq":1,"case":{"a":)" + std::string(depth, '[') + std::string(depth, ']') + "}}";
  };
  EXPECT_EQ(request_error(nested(62)), "no error");
  EXPECT_EQ(request_error(nested(63)), "nested more than 64 deep");
  EXPECT_EQ(request_error(nested(1000000)), "nested more than 64 deep");
  EXPECT_EQ(request_error(R"({"op":"ping","seq":1,"text":")" + std::string(100, '[') + R"(\"{["})"), "no error");
}

TEST(Requests, ErrorsCarryTheSeqOfTheText) {
  const auto seq_of = [](const char* text) {
    try {
      parse_request(text);
    } catch (const ProtocolError& e) {
      return e.seq;
    }
    return std::optional<std::int64_t>{-1};
  };
  EXPECT_EQ(seq_of(R"({"op":"jump","seq":7})"), 7);
  EXPECT_EQ(seq_of(R"({"op":"run","seq":7})"), 7);
  EXPECT_EQ(seq_of(R"({"op":"run","seq":"7"})"), std::nullopt);
  EXPECT_EQ(seq_of("nonsense"), std::nullopt);
}

TEST(Events, ReadyRoundTrips) {
  const ReadyEvent got = event_round_trip(ReadyEvent{.protocol = 1,
                                                     .worker = "w 1",
                                                     .world_size = 2,
                                                     .device = "cpu",
                                                     .ranks = {{0, "a", 7}, {1, "b", 8}},
                                                     .capabilities = {{"comm", {"p2p"}}},
                                                     .versions = {{"torch", "2"}},
                                                     .startup_ms = {{"load", 1.5}}});
  EXPECT_EQ(got.worker, "w 1");
  EXPECT_EQ(got.world_size, 2);
  EXPECT_EQ(got.device, "cpu");
  ASSERT_EQ(got.ranks.size(), 2U);
  EXPECT_EQ(got.ranks[1].host, "b");
  EXPECT_EQ(got.ranks[1].pid, 8);
  EXPECT_EQ(got.capabilities, (json{{"comm", {"p2p"}}}));
  EXPECT_EQ(got.versions, (json{{"torch", "2"}}));
  EXPECT_EQ(got.startup_ms.at("load"), 1.5);
}

TEST(Events, ResultRoundTrips) {
  const ResultEvent got =
      event_round_trip(ResultEvent{.seq = 3,
                                   .outcome = CaseOutcome::fail,
                                   .reason = "why",
                                   .healthy = false,
                                   .ranks = {{{.output_hash = "abc", .timings_ms = {{"forward", 1.5}}}, 0},
                                             {{}, 1, /*ok=*/false, /*aborted=*/true, "boom"}},
                                   .checks = {{.tensor = "dq",
                                               .rank = 1,
                                               .max_abs = 1.0,
                                               .rms = 0.5,
                                               .error = 0.25,
                                               .bound = 0.125,
                                               .baseline = 0.1,
                                               .worst_index = {0, 3, 1},
                                               .ok = false,
                                               .message = "bad"}},
                                   .timings_ms = {{"forward", 2.5}},
                                   .hygiene = {{1, 100, 20, 4}},
                                   .backend = "math",
                                   .backend_note = "partly",
                                   .bound_factor = 2.5,
                                   .lost_outputs = {{"dump", "cannot write x"}},
                                   .value = {}});
  EXPECT_EQ(got.seq, 3);
  EXPECT_EQ(got.outcome, CaseOutcome::fail);
  EXPECT_EQ(got.reason, "why");
  EXPECT_FALSE(got.healthy);
  ASSERT_EQ(got.ranks.size(), 2U);
  EXPECT_EQ(got.ranks[0].output_hash, "abc");
  EXPECT_TRUE(got.ranks[1].aborted);
  EXPECT_EQ(got.ranks[1].error, "boom");
  ASSERT_EQ(got.checks.size(), 1U);
  EXPECT_EQ(got.checks[0].tensor, "dq");
  EXPECT_EQ(got.checks[0].rank, 1);
  EXPECT_EQ(got.checks[0].error, 0.25);
  EXPECT_EQ(got.checks[0].worst_index, (std::vector<std::int64_t>{0, 3, 1}));
  EXPECT_FALSE(got.checks[0].ok);
  EXPECT_EQ(got.timings_ms.at("forward"), 2.5);
  ASSERT_EQ(got.hygiene.size(), 1U);
  EXPECT_EQ(got.hygiene[0].rss_kib, 100);
  EXPECT_EQ(got.hygiene[0].threads, 4);
  EXPECT_EQ(got.backend, "math");
  EXPECT_EQ(got.backend_note, "partly");
  EXPECT_EQ(got.bound_factor, 2.5);
  ASSERT_EQ(got.lost_outputs.size(), 1U);
  EXPECT_EQ(got.lost_outputs[0].output, "dump");
  EXPECT_EQ(got.lost_outputs[0].message, "cannot write x");
  EXPECT_FALSE(got.perf);
}

TEST(Events, TimesOfAResultRoundTrip) {
  ResultEvent sent = result_event();
  PerfResult& perf = sent.perf.emplace();
  perf.request.iterations = 3;
  perf.request.graph = true;
  perf.step_ms = {.median = 2, .min = 1, .max = 4};
  perf.ranks = {{0, {.median = 1.5, .min = 1, .max = 2}}};
  perf.one_rank_ms = StepMs{.median = 3, .min = 3, .max = 5};
  const ResultEvent got = event_round_trip(sent);
  ASSERT_TRUE(got.perf);
  EXPECT_EQ(got.perf->request.iterations, 3);
  EXPECT_TRUE(got.perf->request.graph);
  EXPECT_EQ(got.perf->step_ms.max, 4);
  ASSERT_EQ(got.perf->ranks.size(), 1U);
  EXPECT_EQ(got.perf->ranks[0].ms.median, 1.5);
  ASSERT_TRUE(got.perf->one_rank_ms);
  EXPECT_EQ(got.perf->one_rank_ms->max, 5);
  EXPECT_FALSE(got.perf->bytes_sent);

  sent.perf->one_rank_ms.reset();
  sent.perf->one_rank_reason = "too large";
  EXPECT_FALSE(event_round_trip(sent).perf->one_rank_ms);
  EXPECT_EQ(event_round_trip(sent).perf->one_rank_reason, "too large");
}

TEST(Events, BytesOfATimedStepRoundTrip) {
  ResultEvent sent = result_event();
  sent.perf.emplace().bytes_sent = std::int64_t{1} << 40;
  EXPECT_EQ(event_round_trip(sent).perf->bytes_sent, std::int64_t{1} << 40);
  sent.perf->bytes_sent = 0;
  EXPECT_EQ(event_round_trip(sent).perf->bytes_sent, 0);
  const auto with = [](const char* bytes) {
    return event_error(fmt::format(
        R"({{"event":"result","seq":1,"outcome":"pass","perf":{{"step_ms":{{}},"bytes_sent":{}}}}})", bytes));
  };
  EXPECT_EQ(with("null"), "no error");
  EXPECT_THAT(with("-1"), HasSubstr("bytes_sent -1 is negative"));
  EXPECT_THAT(with("1.5"), HasSubstr("64-bit integer"));
}

TEST(Events, TimesOfAStepAreTimes) {
  const auto with = [](const char* ms) {
    return event_error(
        fmt::format(R"({{"event":"result","seq":1,"outcome":"pass","perf":{{"step_ms":{{"median":{}}}}}}})", ms));
  };
  EXPECT_EQ(with("0.5"), "no error");
  EXPECT_THAT(with("-5"), HasSubstr("median -5 is not a valid time in ms"));
  EXPECT_THAT(with("\"nan\""), HasSubstr("median nan is not a valid time in ms"));
  EXPECT_THAT(with("\"inf\""), HasSubstr("median inf is not a valid time in ms"));
}

TEST(Events, ADiagnosisRoundTrips) {
  ResultEvent result = result_event();
  EXPECT_FALSE(json::parse(encode(result)).contains("diagnosing"));
  result.diagnosing = true;
  EXPECT_TRUE(event_round_trip(result).diagnosing);
  DiagnosisEvent sent;
  sent.seq = 12;
  sent.healthy = false;
  sent.diagnosis.certainty = Certainty::likely;
  sent.diagnosis.id = "no_mask";
  sent.diagnosis.cause = "the mask is missing";
  sent.diagnosis.picture =
      MaskPicture{.rows = {"."}, .q_borders = {}, .kv_borders = {}, .q_ranks = {0}, .kv_ranks = {0}};
  sent.diagnosis.pairs.emplace().missing_pairs = 3;
  const DiagnosisEvent got = event_round_trip(sent);
  EXPECT_EQ(got.seq, 12);
  EXPECT_FALSE(got.healthy);
  EXPECT_EQ(got.diagnosis.certainty, Certainty::likely);
  EXPECT_EQ(got.diagnosis.id, "no_mask");
  EXPECT_EQ(got.diagnosis.cause, "the mask is missing");
  EXPECT_EQ(got.diagnosis.pairs->missing_pairs, 3);
  ASSERT_TRUE(got.diagnosis.picture);
  EXPECT_EQ(got.diagnosis.picture->rows.front(), ".");
}

// An invalid diagnosis is no protocol error, because the result of its case stays valid.
TEST(Events, WhatIsNoDiagnosisIsReadAsAnUnknownOne) {
  for (const char* body : {R"("seq":12)", R"("seq":12,"diagnosis":3)", R"("seq":12,"diagnosis":{"certainty":"sure"})",
                           R"("seq":12,"healthy":7,"diagnosis":{"certainty":"likely","id":"x","cause":"y"})",
                           R"("seq":12,"diagnosis":{"certainty":"likely","id":"x","cause":["y"]})"}) {
    const auto event = std::get<DiagnosisEvent>(parse_event(fmt::format(R"({{"event":"diagnosis",{}}})", body)));
    EXPECT_EQ(event.seq, 12) << body;
    EXPECT_TRUE(event.healthy) << body;
    EXPECT_EQ(event.diagnosis.certainty, Certainty::unknown) << body;
    EXPECT_THAT(event.diagnosis.cause, HasSubstr("the worker's diagnosis cannot be read: diagnosis: ")) << body;
  }
  EXPECT_EQ(std::get<DiagnosisEvent>(parse_event(R"({"event":"diagnosis","seq":"x"})")).seq, 0);
}

TEST(Events, OthersRoundTrip) {
  EXPECT_EQ(event_round_trip(StartedEvent{5}).seq, 5);
  EXPECT_EQ(event_round_trip(ProgressEvent{5, "forward"}).phase, "forward");
  EXPECT_EQ(event_round_trip(PongEvent{6, {0, 1}}).ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(encode(Event{PongEvent{6, {0}}}).find("phases"), std::string::npos) << "others do not know it";
  const auto pong =
      event_round_trip(PongEvent{6, {0, 1}, {{1, "forward", 2.5, "exchange with all on group cp: k", 1.5}}});
  ASSERT_EQ(pong.phases.size(), 1U);
  EXPECT_EQ(pong.phases[0].rank, 1);
  EXPECT_EQ(pong.phases[0].phase, "forward");
  EXPECT_EQ(pong.phases[0].ms, 2.5);
  EXPECT_EQ(pong.phases[0].operation, "exchange with all on group cp: k");
  EXPECT_EQ(pong.phases[0].operation_ms, 1.5);
  EXPECT_EQ(event_round_trip(ProtocolErrorEvent{std::nullopt, "m"}).seq, std::nullopt);
  EXPECT_EQ(event_round_trip(ProtocolErrorEvent{8, "m"}).seq, 8);
}

TEST(Events, AWorkerSaysItsOwnOutcomesAlone) {
  const auto with = [](std::string_view outcome) {
    return event_error(fmt::format(R"({{"event":"result","seq":1,"outcome":"{}"}})", outcome));
  };
  for (const CaseOutcome outcome : {CaseOutcome::pass, CaseOutcome::fail, CaseOutcome::skip, CaseOutcome::error,
                                    CaseOutcome::timeout, CaseOutcome::cancelled}) {
    ResultEvent sent = result_event();
    sent.outcome = outcome;
    EXPECT_EQ(event_round_trip(sent).outcome, outcome);
  }
  for (const CaseOutcome outcome : {CaseOutcome::crash, CaseOutcome::infra, CaseOutcome::not_run}) {
    EXPECT_THAT(with(to_string(outcome)), HasSubstr("is not an outcome that a worker may report"));
  }
  EXPECT_THAT(with("maybe"), HasSubstr("\"maybe\" is not among pass, fail, skip,"));
}

TEST(Events, NonFiniteNumbersAreStrings) {
  ResultEvent event = result_event();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  Check check;
  check.max_abs = std::nan("");
  check.rms = kInf;
  check.error = -kInf;
  event.checks.push_back(check);
  event.timings_ms["x"] = kInf;
  const json text = json::parse(encode(event));
  EXPECT_EQ(text["checks"][0]["max_abs"], "nan");
  EXPECT_EQ(text["checks"][0]["rms"], "inf");
  EXPECT_EQ(text["checks"][0]["error"], "-inf");
  const ResultEvent got = event_round_trip(event);
  EXPECT_TRUE(std::isnan(got.checks[0].max_abs));
  EXPECT_EQ(got.checks[0].rms, kInf);
  EXPECT_EQ(got.checks[0].error, -kInf);
  EXPECT_EQ(got.timings_ms.at("x"), kInf);
}

TEST(Events, NumbersKeepEveryBit) {
  ResultEvent event = result_event();
  event.timings_ms["x"] = 0.1 + 0.2;
  EXPECT_EQ(event_round_trip(event).timings_ms.at("x"), 0.1 + 0.2);
}

TEST(Events, AreOneLineOfValidUtf8) {
  ResultEvent event = result_event();
  event.reason = "bad \xff byte\nnext line";
  const std::string text = format_response(event);
  EXPECT_TRUE(text.starts_with("\n[CP_POOL_RESP] {"));
  EXPECT_EQ(text.find('\n', 1), text.size() - 1);
  EXPECT_THAT(text, HasSubstr("bad \xef\xbf\xbd byte\\nnext line"));
}

// Code that shows a worker's text relies on this.
TEST(Events, EveryTextOfAWorkerIsCleanOnceItIsRead) {
  const auto ready = std::get<ReadyEvent>(parse_event(
      R"({"event":"ready","protocol":1,"world_size":1,"worker":"a\u001b[31mb","ranks":[{"rank":0,"host":"\u0007"}],)"
      R"("versions":{"torch\u001b":"\u009b1"},"startup_ms":{"lo\u0000ad":1}})"));
  EXPECT_EQ(ready.worker, "a\\x1b[31mb");
  EXPECT_EQ(ready.ranks.at(0).host, "\\x07");
  EXPECT_EQ(ready.versions, (json{{"torch\\x1b", "\\u{009b}1"}}));
  EXPECT_EQ(ready.startup_ms.at("lo\\x00ad"), 1);
  EXPECT_EQ(phase_of("a\\tb\\nc"), "a\tb\nc") << "lines and tabs are for those who show them";
}

TEST(Events, InvalidUtf8IsReadAsReplacement) {
  const auto event = std::get<ProgressEvent>(parse_event("{\"event\":\"progress\",\"seq\":1,\"phase\":\"\xe9\"}"));
  EXPECT_EQ(event.phase, "\xef\xbf\xbd");
}

// Python's json.dumps writes such an escape for a byte that it could not decode.
TEST(Events, AnEscapeOfHalfASurrogatePairIsReadAsReplacement) {
  const std::string replaced = "\xef\xbf\xbd";
  EXPECT_EQ(phase_of(R"(\ud800)"), replaced);
  EXPECT_EQ(phase_of(R"(\uDFFF)"), replaced);
  EXPECT_EQ(phase_of(R"(a\udcffb)"), "a" + replaced + "b");
  EXPECT_EQ(phase_of(R"(\ud800\ud800)"), replaced + replaced);
  EXPECT_EQ(phase_of(R"(\ude00\ud83d)"), replaced + replaced);
  EXPECT_EQ(phase_of(R"(\ud800\u0041)"), replaced + "A");
  EXPECT_EQ(phase_of(R"(\ud800\n)"), replaced + "\n");
  EXPECT_EQ(phase_of(R"(\ud800\ud83d\ude00)"), replaced + "\xf0\x9f\x98\x80");
}

TEST(Events, WholePairsAndWhatOnlyLooksLikeAnEscapeStayAsTheyAre) {
  EXPECT_EQ(phase_of(R"(\ud83d\ude00)"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(phase_of(R"(\\ud800)"), R"(\ud800)");
  EXPECT_EQ(phase_of(R"(\\\\ud800\\)"), R"(\\ud800\)");
  EXPECT_THAT(event_error(R"({"event":"progress","seq":1,"phase":"\ud8"})"), HasSubstr("not JSON"));
  EXPECT_THAT(event_error(R"({"event":"progress","seq":1,"phase":"\)"), HasSubstr("not JSON"));
  EXPECT_THAT(event_error(R"({"event":"\ud800)"), HasSubstr("not JSON"));
}

TEST(Events, ACheckWithoutErrorOrBoundIsNotMeasured) {
  const auto measured = [](const std::string& figures) {
    const auto event = std::get<ResultEvent>(parse_event(
        R"({"event":"result","seq":1,"outcome":"pass","checks":[{"tensor":"dq","rank":0,"ok":true)" + figures + "}]}"));
    EXPECT_EQ(event_round_trip(event).checks.at(0).measured, event.checks.at(0).measured);
    return event.checks.at(0).measured;
  };
  EXPECT_TRUE(measured(R"(,"error":0,"bound":0)"));
  EXPECT_TRUE(measured(R"(,"error":"nan","bound":1)"));
  EXPECT_FALSE(measured(""));
  EXPECT_FALSE(measured(R"(,"error":0)"));
  EXPECT_FALSE(measured(R"(,"bound":0)"));
  EXPECT_FALSE(measured(R"(,"error":null,"bound":1)"));
}

TEST(Events, AMinimalWorkerMayLeaveOutEveryDefault) {
  const auto ready = std::get<ReadyEvent>(parse_event(R"({"event":"ready","protocol":1,"world_size":2})"));
  EXPECT_EQ(ready.world_size, 2);
  const auto result = std::get<ResultEvent>(parse_event(R"({"event":"result","seq":1,"outcome":"pass"})"));
  EXPECT_TRUE(result.healthy);
  EXPECT_TRUE(result.ranks.empty());
}

TEST(Events, UnknownOnesKeepTheirName) {
  EXPECT_EQ(std::get<UnknownEvent>(parse_event(R"({"event":"new","x":1})")).event, "new");
}

TEST(Events, ErrorsNameTheFieldAndWhatCame) {
  EXPECT_THAT(event_error("oops"), HasSubstr("not JSON"));
  EXPECT_EQ(event_error(R"({"seq":1})"), R"(event: "event" is missing)");
  EXPECT_EQ(event_error(R"({"event":"result","seq":1})"), R"(result: "outcome" is missing)");
  EXPECT_THAT(event_error(R"({"event":"result","seq":1,"outcome":"pass","healthy":"yes"})"), HasSubstr("healthy"));
  EXPECT_THAT(event_error(R"({"event":"result","seq":1,"outcome":"pass","checks":{}})"), HasSubstr("an array"));
  EXPECT_THAT(event_error(R"({"event":"result","seq":1,"outcome":"pass","ranks":[3]})"), HasSubstr("ranks"));
  EXPECT_THAT(event_error(R"({"event":"ready","protocol":"1","world_size":2})"), HasSubstr("32-bit integer"));
}

TEST(Requests, RunMayHaveACallInsteadOfACase) {
  RunRequest sent;
  sent.call = {{"function", "m:f"}, {"arguments", {{"n", 3}}}};
  const json text = json::parse(encode(sent));
  EXPECT_EQ(text.at("call"), sent.call);
  EXPECT_FALSE(text.contains("case"));
  EXPECT_EQ(request_round_trip(sent).call, sent.call);
  EXPECT_THAT(request_error(R"({"op":"run","seq":1})"), HasSubstr("\"case\" is missing"));
  EXPECT_THAT(request_error(R"({"op":"run","seq":1,"case":{},"call":{}})"), HasSubstr("exclude each other"));
}

TEST(Results, MayHaveTheValueOfACall) {
  ResultEvent sent;
  EXPECT_FALSE(json::parse(encode(Event{sent})).contains("value"));
  for (const json& value : {json(3), json("text"), json{{"a", {1, 2}}}, json(false), json::array()}) {
    sent.value.value = value;
    EXPECT_EQ(std::get<ResultEvent>(parse_event(encode(Event{sent}))).value.value, value);
  }
}

}  // namespace
}  // namespace cp_pool::protocol
