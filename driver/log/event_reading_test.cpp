#include <gtest/gtest.h>

#include "driver/log/events_json.h"
#include "driver/testing/attention.h"
#include "driver/testing/example_events.h"
#include "worker/protocol/messages.h"

namespace cp_pool {
namespace {

// Expects that a read event is written again with every field unchanged.
void expect_round_trip(const Event& event) {
  nlohmann::ordered_json line = event_json(event);
  if (const auto* begin = std::get_if<RunStarted>(&event)) line["ts"] = utc_timestamp(begin->started);
  const std::optional<Event> read = read_event(line);
  ASSERT_TRUE(read) << line;
  EXPECT_EQ(read->index(), event.index());
  EXPECT_EQ(event_json(*read), event_json(event));
}

// tests/golden/runs has events of every type with all their fields.
TEST(ReadEvent, GivesBackEveryNameOfAField) {
  for (int i = 0; i <= static_cast<int>(RetireReason::interrupted); ++i) {
    expect_round_trip(test::pool_retired(static_cast<RetireReason>(i), "a sentence"));
  }
  for (const auto& [kind, name] : kNames<VerdictKind>) {
    CaseVerdict verdict;
    verdict.verdict.kind = kind;
    expect_round_trip(verdict);
  }
  for (int i = 0; i <= static_cast<int>(RunStopping::Reason::global_timeout); ++i) {
    expect_round_trip(RunStopping{.reason = static_cast<RunStopping::Reason>(i), .limit_ms = 1500});
  }
  for (std::size_t i = 0; i < kCaseOutcomes; ++i) {
    expect_round_trip(test::finished(i, "id", static_cast<CaseOutcome>(i), "because"));
  }
  for (const auto& [step, name] : kNames<SearchStep>) {
    CaseFinished of_search = test::finished(1, "id", CaseOutcome::pass);
    of_search.search = step;
    expect_round_trip(of_search);
  }
}

TEST(ReadEvent, KnowsWhenTheRunBegan) {
  const RunStarted begin = test::run_started(1);
  nlohmann::ordered_json line = event_json(begin);
  line["ts"] = "2027-01-15T08:00:00.000Z";
  EXPECT_EQ(std::get<RunStarted>(read_event(line).value()).started, begin.started);
}

TEST(ReadEvent, TakesARatioThatIsNoNumberForNone) {
  nlohmann::ordered_json line = event_json(test::compared_case(0, "id", 12, 8));
  line["perf"]["efficiency"] = "nan";
  line["perf"]["baseline_ms"] = "nan";
  const auto event = std::get<CaseFinished>(read_event(line).value());
  EXPECT_FALSE(event.perf->efficiency);
  EXPECT_FALSE(event.perf->ratio());
}

TEST(ReadEvent, PassesOverTypesOfLaterVersionsAndRefusesWhatIsNone) {
  using Json = nlohmann::ordered_json;
  EXPECT_FALSE(read_event(Json::parse(R"({"type":"case_praised","id":"a"})")));
  EXPECT_THROW(read_event(Json::parse(R"({"type":"pool_retired","pool":{"key":"a","generation":1},"reason":"bored"})")),
               protocol::ProtocolError);
  EXPECT_THROW(read_event(Json::parse(R"({"type":"case_started"})")), protocol::ProtocolError);
  EXPECT_THROW(read_event(Json::parse(R"({"type":"case_finished","id":"a"})")), protocol::ProtocolError);
  EXPECT_THROW(read_event(Json::parse("[]")), protocol::ProtocolError);
}

TEST(ParseUtcTimestamp, ReadsWhatWasWrittenAndNothingElse) {
  const auto time = std::chrono::system_clock::from_time_t(1'800'000'000) + std::chrono::milliseconds{7};
  EXPECT_EQ(parse_utc_timestamp(utc_timestamp(time)), time);
  for (const char* text : {"", "2027", "2027-01-15T08:00:00Z", "2027-01-15T08:00:00.000Z!", "soon"}) {
    EXPECT_FALSE(parse_utc_timestamp(text)) << text;
  }
}

TEST(ReadEvent, TakesInNoDiagnosisThatIsNotWellFormed) {
  CaseFinished failed = test::failed_case(0, "id");
  failed.diagnosis = test::example_diagnosis();
  nlohmann::ordered_json line = event_json(failed);
  line["diagnosis"]["picture"]["rows"] = {"..", "."};
  line["diagnosis"]["id"] = "";
  const auto event = std::get<CaseFinished>(read_event(line).value());
  EXPECT_FALSE(event.diagnosis->picture);
  EXPECT_EQ(event.diagnosis->certainty, Certainty::unknown);
}

// A worker that others wrote may send anything.
TEST(SharedGpus, AreANumberOrNone) {
  protocol::ReadyEvent ready;
  EXPECT_EQ(protocol::shared_gpus(ready), 0);
  for (const nlohmann::json& nonsense : {nlohmann::json("yes"), nlohmann::json(-1), nlohmann::json(1.5)}) {
    ready.capabilities = {{"shared_gpus", nonsense}};
    EXPECT_EQ(protocol::shared_gpus(ready), 0) << nonsense;
  }
}

}  // namespace
}  // namespace cp_pool
