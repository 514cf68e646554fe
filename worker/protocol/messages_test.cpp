#include "worker/protocol/messages.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cp_pool::protocol {
namespace {

using nlohmann::json;
using testing::HasSubstr;

template <typename T>
T event_round_trip(const T& message) {
  return std::get<T>(parse_event(encode(Event{message})));
}

ResultEvent result_event() {
  ResultEvent event;
  event.seq = 1;
  return event;
}

// What the parse function says against the text.
template <typename Parse>
std::string error_of(Parse parse, const std::string& text) {
  try {
    parse(text);
  } catch (const ProtocolError& e) {
    return e.what();
  }
  return "no error";
}
std::string request_error(const std::string& text) {
  return error_of(parse_request, text);
}
std::string event_error(const std::string& text) {
  return error_of(parse_event, text);
}

std::string phase_of(const std::string& escaped) {
  return std::get<ProgressEvent>(parse_event(R"({"event":"progress","seq":1,"phase":")" + escaped + "\"}")).phase;
}

// Expects that what is written has every value of the text that was read.
void expect_kept(const std::string& read, const std::string& written) {
  const json got = json::parse(written).flatten();
  const json expected = json::parse(read).flatten();
  for (const auto& [path, value] : expected.items()) {
    ASSERT_TRUE(got.contains(path)) << path << " of " << read;
    EXPECT_EQ(got.at(path), value) << path << " of " << read;
  }
}

TEST(Requests, KeepEveryField) {
  for (const char* const text :
       {R"({"op":"run","seq":12,"id":"a/b","case":{"cp_size":2},"timeout_ms":5000,"lengths":{"valid_q":[3,5]},)"
        R"("options":{"dump_dir":"/x","reference_cache":false,"perf":{"warmup":0,"iterations":7},"bound_factor":2.5,)"
        R"("diagnosis_ms":5000}})",
        R"({"op":"run","seq":12,"call":{"function":"m:f","arguments":{"n":3}}})",
        R"({"op":"prepare","seq":13,"case":{"cp_size":2},"lengths":{"padded_kv":[4,8]}})",
        R"({"op":"cancel","seq":14})", R"({"op":"ping","seq":15,"all":true})", R"({"op":"shutdown"})"}) {
    expect_kept(text, encode(parse_request(text)));
  }
}

TEST(Requests, SayNothingOfWhatIsNotSet) {
  RunRequest run;
  run.case_json = {{"cp_size", 2}};
  EXPECT_EQ(json::parse(encode(run)), (json{{"op", "run"},
                                            {"seq", 0},
                                            {"id", ""},
                                            {"case", {{"cp_size", 2}}},
                                            {"timeout_ms", 90000},
                                            {"options", {{"dump_dir", nullptr}, {"reference_cache", true}}}}));
  EXPECT_EQ(json::parse(encode(PingRequest{15, false})), (json{{"op", "ping"}, {"seq", 15}}));
}

TEST(Requests, TakeDefaultsAndIgnoreUnknownFields) {
  const auto run = std::get<RunRequest>(parse_request(R"({"op":"run","seq":1,"case":{},"future":[1]})"));
  EXPECT_EQ(run.timeout_ms, 90000);
  EXPECT_EQ(run.options.dump_dir, std::nullopt);
  EXPECT_TRUE(run.options.reference_cache);
}

TEST(Requests, ErrorsNameTheFieldAndWhatCame) {
  const auto run = [](const std::string& rest) { return request_error(R"({"op":"run","seq":1)" + rest + "}"); };
  EXPECT_THAT(request_error("{"), HasSubstr("not JSON"));
  EXPECT_THAT(request_error("[]"), HasSubstr("expected an object, got []"));
  EXPECT_EQ(request_error("{}"), R"(op: "op" is missing)");
  EXPECT_EQ(request_error(R"({"op":"jump"})"), R"(unknown op "jump")");
  EXPECT_EQ(request_error(R"({"op":"run","case":{}})"), R"(run: "seq" is missing)");
  EXPECT_EQ(request_error(R"({"op":"run","seq":1.5,"case":{}})"), R"(run: "seq": expected a 64-bit integer, got 1.5)");
  EXPECT_THAT(request_error(R"({"op":"run","seq":9223372036854775808,"case":{}})"), HasSubstr("64-bit integer"));
  EXPECT_EQ(run(""), R"(run: "case" is missing)");
  EXPECT_EQ(run(R"(,"case":3)"), R"(run: "case": expected an object, got 3)");
  EXPECT_THAT(run(R"(,"case":{},"call":{})"), HasSubstr("exclude each other"));
  EXPECT_THAT(run(R"(,"case":{},"lengths":[4])"), HasSubstr("lengths"));
  EXPECT_THAT(run(R"(,"case":{},"timeout_ms":0)"), HasSubstr("timeout_ms 0"));
  const auto option = [&](const std::string& text) { return run(R"(,"case":{},"options":{)" + text + "}"); };
  EXPECT_THAT(option(R"("dump_dir":3)"), HasSubstr("dump_dir"));
  EXPECT_EQ(option(R"("reference_cache":0)"), R"(run: options: "reference_cache": expected true or false, got 0)");
  EXPECT_THAT(option(R"("perf":{"warmup":-1})"), HasSubstr("warmup -1"));
  EXPECT_THAT(option(R"("perf":{"iterations":0})"), HasSubstr("iterations 0"));
  EXPECT_THAT(option(R"("perf":3)"), HasSubstr("perf"));
  EXPECT_THAT(option(R"("bound_factor":0)"), HasSubstr("bound_factor 0 is not positive"));
  EXPECT_THAT(option(R"("diagnosis_ms":0)"), HasSubstr("diagnosis_ms 0 is not positive"));
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

TEST(Events, KeepEveryField) {
  for (const char* const text :
       {R"({"event":"ready","protocol":1,"worker":"w 1","world_size":2,"device":"cpu","ranks":[{"rank":0,"host":"a",)"
        R"("pid":7},{"rank":1,"host":"b","pid":8}],"capabilities":{"comm":["p2p"]},"versions":{"torch":"2"},)"
        R"("startup_ms":{"load":1.5}})",
        R"({"event":"started","seq":5})", R"({"event":"progress","seq":5,"phase":"forward"})",
        R"({"event":"result","seq":3,"outcome":"fail","reason":"why","healthy":false,"ranks":[{"rank":0,"ok":true,)"
        R"("output_hash":"abc","timings_ms":{"forward":1.5}},{"rank":1,"ok":false,"aborted":true,"error":"boom"}],)"
        R"("checks":[{"tensor":"dq","rank":1,"max_abs":1.0,"rms":0.5,"error":0.25,"bound":0.125,"baseline":0.1,)"
        R"("worst_index":[0,3,1],"ok":false,"message":"bad"}],"timings_ms":{"forward":2.5},"hygiene":[{"rank":1,)"
        R"("rss_kib":100,"fds":20,"threads":4}],"backend":"math","backend_note":"partly","bound_factor":2.5,)"
        R"("lost_outputs":[{"output":"dump","message":"cannot write x"}],"diagnosing":true})",
        R"({"event":"result","seq":1,"outcome":"pass","perf":{"iterations":3,"graph":true,"step_ms":{"median":2.0,)"
        R"("min":1.0,"max":4.0},"ranks":[{"rank":0,"ms":{"median":1.5,"min":1.0,"max":2.0}}],"one_rank_ms":)"
        R"({"median":3.0,"min":3.0,"max":5.0},"bytes_sent":1099511627776}})",
        R"({"event":"result","seq":1,"outcome":"pass","perf":{"step_ms":{"min":1.0},"one_rank_reason":"too large",)"
        R"("bytes_sent":0}})",
        R"({"event":"result","seq":1,"outcome":"pass","value":3})",
        R"({"event":"result","seq":1,"outcome":"skip","value":{"a":[1,"text",false]}})",
        R"({"event":"diagnosis","seq":12,"healthy":false,"diagnosis":{"certainty":"likely","id":"no_mask",)"
        R"("cause":"the mask is missing","picture":{"rows":["."],"q_borders":[],"kv_borders":[],"q_ranks":[0],)"
        R"("kv_ranks":[0]},"pairs":{"missing_pairs":3}}})",
        R"({"event":"pong","seq":6,"ranks":[0,1],"phases":[{"rank":1,"phase":"forward","ms":2.5,)"
        R"("operation":"all_to_all on group cp: k","operation_ms":1.5}],"difference":"how"})",
        R"({"event":"protocol_error","seq":8,"message":"m"})",
        R"({"event":"protocol_error","seq":null,"message":"m"})"}) {
    expect_kept(text, encode(parse_event(text)));
  }
}

TEST(Events, SayNothingOfWhatIsNotSet) {
  const json result = json::parse(encode(Event{result_event()}));
  for (const char* const field : {"perf", "bound_factor", "diagnosing", "value", "backend_note", "lost_outputs"}) {
    EXPECT_FALSE(result.contains(field)) << field;
  }
  EXPECT_EQ(json::parse(encode(Event{PongEvent{6, {0}}})), (json{{"event", "pong"}, {"seq", 6}, {"ranks", {0}}}));
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

TEST(Events, AWorkerSaysItsOwnOutcomesAlone) {
  const auto with = [](std::string_view outcome) {
    return event_error(fmt::format(R"({{"event":"result","seq":1,"outcome":"{}"}})", outcome));
  };
  for (const char* const outcome : {"pass", "fail", "skip", "error", "timeout", "cancelled"}) {
    EXPECT_EQ(with(outcome), "no error") << outcome;
  }
  for (const char* const outcome : {"crash", "infra", "not-run"}) {
    EXPECT_THAT(with(outcome), HasSubstr("is not an outcome that a worker may report")) << outcome;
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
  event.timings_ms = {{"x", kInf}, {"every bit", 0.1 + 0.2}};
  const json text = json::parse(encode(event));
  EXPECT_EQ(text["checks"][0]["max_abs"], "nan");
  EXPECT_EQ(text["checks"][0]["rms"], "inf");
  EXPECT_EQ(text["checks"][0]["error"], "-inf");
  const ResultEvent got = event_round_trip(event);
  EXPECT_TRUE(std::isnan(got.checks[0].max_abs));
  EXPECT_EQ(got.checks[0].rms, kInf);
  EXPECT_EQ(got.checks[0].error, -kInf);
  EXPECT_EQ(got.timings_ms, event.timings_ms);
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
  EXPECT_THAT(event_error(R"({"event":"ready","protocol":"1","world_size":2})"), HasSubstr("32-bit integer"));
  const auto pass = [](const std::string& rest) {
    return event_error(R"({"event":"result","seq":1,"outcome":"pass",)" + rest + "}");
  };
  EXPECT_THAT(pass(R"("healthy":"yes")"), HasSubstr("healthy"));
  EXPECT_THAT(pass(R"("checks":{})"), HasSubstr("an array"));
  EXPECT_THAT(pass(R"("ranks":[3])"), HasSubstr("ranks"));
  EXPECT_EQ(pass(R"("perf":{"step_ms":{"median":0.5},"bytes_sent":null})"), "no error");
  EXPECT_THAT(pass(R"("perf":{"step_ms":{},"bytes_sent":-1})"), HasSubstr("bytes_sent -1 is negative"));
  EXPECT_THAT(pass(R"("perf":{"step_ms":{},"bytes_sent":1.5})"), HasSubstr("64-bit integer"));
  for (const std::string median : {"-5", "nan", "inf"}) {
    const std::string value = median == "-5" ? median : '"' + median + '"';
    EXPECT_THAT(pass(R"("perf":{"step_ms":{"median":)" + value + "}}"),
                HasSubstr("median " + median + " is not a valid time in ms"));
  }
}

}  // namespace
}  // namespace cp_pool::protocol
