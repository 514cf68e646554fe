#include "driver/log/events_json.h"

#include <algorithm>
#include <variant>
#include <vector>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/testing/example_events.h"

namespace cp_pool {
namespace {

using ::testing::HasSubstr;
using Keys = std::vector<std::string>;

TEST(ToLine, IsOneLineOfValidUtf8WhateverTheTextHolds) {
  const CaseFinished event = test::finished(0, "id", CaseOutcome::crash, "line\nbad \xff byte\x01");
  const std::string line = to_line(event_json(event));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(line)["reason"], "line\nbad \xef\xbf\xbd byte\x01");
}

// --- docs/events.md --------------------------------------------------------------------------------------------------

// Returns the part of the page about a type of event: from its name to the next.
std::string section_of(const std::string& type) {
  static const std::string page = test::read_file(CP_POOL_SOURCE_DIR "/docs/events.md");
  const std::size_t begin = page.find("\n**" + type + "**");
  return begin == std::string::npos ? "" : page.substr(begin, page.find("\n**", begin + 1) - begin);
}

void expect_named(const std::string& section, const std::string& name) {
  EXPECT_THAT(section, HasSubstr("`" + name + "`"));
}
template <typename Struct>
void expect_named(const std::string& section) {
  for_each_field<Struct>([&](const auto& field) { expect_named(section, field.name); });
}

template <typename Type>
std::string described() {
  SCOPED_TRACE(Type::kName);
  std::string section = section_of(Type::kName);
  expect_named<Type>(section);
  return section;
}

TEST(EventsPage, DescribesEveryFieldOfEveryType) {
  expect_named<ShardOfRun>(described<RunStarted>());
  described<PoolSpawned>();
  expect_named<protocol::RankInfo>(described<PoolReady>());
  const std::string retired = described<PoolRetired>();
  expect_named<RankExit>(retired);
  expect_named<Leftover>(retired);
  for (const auto& [reason, name] : kNames<RetireReason>)
    EXPECT_THAT(retired, HasSubstr("`" + std::string{name} + "`"));
  described<CaseStarted>();
  expect_named<RankStanding>(described<CaseProgress>());
  EXPECT_THAT(section_of(CaseTried::kName), HasSubstr("`case_finished`")) << "whose fields it has";
  const std::string finished = described<CaseFinished>();
  expect_named<StderrTail>(finished);
  Keys measured;  // docs/protocol.md describes these fields, and the page refers to it
  for_each_field<StepMeasurements>([&](const auto& field) { measured.emplace_back(field.name); });
  EXPECT_THAT(finished,
              HasSubstr("| measurements of the worker | as in the `perf` of its [result](protocol.md#result)"));
  for_each_field<PerfFigures>([&](const auto& field) {
    if (std::ranges::find(measured, field.name) == measured.end()) expect_named(finished, field.name);
  });
  expect_named<Diagnosis>(finished);
  expect_named<StepMs>(finished);
  for (const auto& [outcome, name] : kNames<CaseOutcome>) {
    EXPECT_THAT(finished, HasSubstr("`" + std::string{name} + "`"));
  }
  described<CaseReplayed>();
  const std::string verdict = described<CaseVerdict>();
  expect_named<Verdict>(verdict);
  for (const auto& [kind, name] : kNames<VerdictKind>) EXPECT_THAT(verdict, HasSubstr("`" + std::string{name} + "`"));
  described<RunPaused>();
  for (const auto& [reason, name] : kNames<RunStopping::Reason>) {
    EXPECT_THAT(described<RunStopping>(), HasSubstr("`" + std::string{name} + "`"));
  }
  described<OutputLost>();
  described<ForkServerTold>();
  for (const auto& [step, name] : kNames<SearchStep>) EXPECT_THAT(finished, HasSubstr("`" + std::string{name} + "`"));
  described<SearchFound>();
  const std::string searched = described<SearchFinished>();
  expect_named<CasesWith>(searched);
  expect_named<NeverJudged>(searched);
  described<RunFinished>();
  EXPECT_EQ(std::variant_size_v<AnyEvent>, 17U) << "a type that this test does not name";
}

}  // namespace
}  // namespace cp_pool
