#include "driver/cli/history/run_records.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/core/exit_code.h"
#include "driver/log/events_json.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Records : public ::testing::Test {
 protected:
  void add(const std::string& id, const std::string& events = "") {
    std::filesystem::create_directories(folder / id);
    write_file(folder / id / kRecordEvents, events);
    write_file(folder / id / kRecordFile,
               R"({"command": "cp-pool run", "version": "1", "started": "2025-11-25T07:00:12.000Z"})");
  }
  [[nodiscard]] std::vector<std::string> ids() const {
    std::vector<std::string> ids;
    for (const RunRecord& record : run_records(folder.path())) ids.push_back(record.id);
    return ids;
  }
  [[nodiscard]] std::string meant(const std::string& text) const {
    try {
      return find_record(run_records(folder.path()), text).id;
    } catch (const CommandError& e) {
      return e.what();
    }
  }

  TemporaryFolder folder;
};

TEST_F(Records, AreListedByTimeAndOtherFoldersAreNot) {
  add("251125-070012b");
  add("251125-070012");
  add("251124-235959");
  std::filesystem::create_directory(folder / "notes");
  std::filesystem::create_directory(folder / "251126-000000");  // it is being made: it has no run.json yet
  EXPECT_THAT(ids(), ElementsAre("251124-235959", "251125-070012", "251125-070012b"));
}

TEST_F(Records, AreFoundByAnyBeginningThatIsEnough) {
  EXPECT_EQ(meant("last"), "no run is recorded");
  add("251124-235959");
  add("251125-070012");
  add("251125-070012b");
  EXPECT_EQ(meant("last"), "251125-070012b");
  EXPECT_EQ(meant("251124"), "251124-235959");
  EXPECT_EQ(meant("23"), "251124-235959");
  EXPECT_EQ(meant("251125-070012"), "251125-070012") << "the whole ID, although it begins another";
  EXPECT_EQ(meant("251125"), "'251125' may be 2 recorded runs, such as 251125-070012 and 251125-070012b");
  EXPECT_EQ(meant("-1"), "251125-070012b");
  EXPECT_EQ(meant("-3"), "251124-235959");
  EXPECT_EQ(meant("-4"), "there is no run -4: 3 runs are recorded");
  EXPECT_EQ(meant("-0"), "there is no run -0: 3 runs are recorded");
  EXPECT_THAT(meant("26"), HasSubstr("no recorded run is called '26'"));
  EXPECT_THAT(meant(""), HasSubstr("no recorded run"));
}

TEST_F(Records, ArePrunedByCountAgeAndSizeTheOldestFirst) {
  const auto noon = *parse_utc_timestamp("2025-11-03T12:00:00.000Z");
  const std::vector<std::string> all{"251101-000000", "251102-000000", "251103-000000"};
  for (const std::string& id : all) add(id, std::string(700 << 10U, '\n'));
  const RecordLimits none{.count = 0, .age = std::chrono::hours{0}, .mebibytes = 0};
  prune_records(folder.path(), none, "", noon);
  EXPECT_EQ(ids(), all);
  RecordLimits size = none;
  size.mebibytes = 2;
  prune_records(folder.path(), size, "", noon);
  EXPECT_THAT(ids(), ElementsAre("251102-000000", "251103-000000"));
  RecordLimits age = none;
  age.age = std::chrono::hours{36};
  prune_records(folder.path(), age, "", noon);
  EXPECT_THAT(ids(), ElementsAre("251102-000000", "251103-000000"));
  prune_records(folder.path(), age, "", noon + std::chrono::seconds{1});
  EXPECT_THAT(ids(), ElementsAre("251103-000000"));
  RecordLimits count = none;
  count.count = 1;
  add("251101-000000");
  prune_records(folder.path(), count, "251101-000000", noon);
  EXPECT_THAT(ids(), ElementsAre("251101-000000", "251103-000000")) << "one is to be kept";
  prune_records(folder.path(), count, "", noon);
  EXPECT_THAT(ids(), ElementsAre("251103-000000"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "nothing is left of them";
}

TEST_F(Records, ThatAreBeingMadeAreNotPrunedBeforeTheirProcessIsSurelyDead) {
  const auto noon = *parse_utc_timestamp("2025-11-03T12:00:00.000Z");
  std::filesystem::create_directory(folder / "251103-110000");  // it has no run.json
  std::filesystem::create_directory(folder / ".251103-100000.1.gone");
  const RecordLimits hour{.count = 1, .age = std::chrono::hours{1}, .mebibytes = 1};
  prune_records(folder.path(), hour, "", noon + std::chrono::hours{23});
  EXPECT_TRUE(std::filesystem::exists(folder / "251103-110000"));
  EXPECT_FALSE(std::filesystem::exists(folder / ".251103-100000.1.gone"))
      << "of a process that died while it removed it";
  prune_records(folder.path(), hour, "", noon + std::chrono::hours{24});
  EXPECT_FALSE(std::filesystem::exists(folder / "251103-110000"));
}

TEST_F(Records, OfARunThatIsKilledAreWholeUpToItsLastLine) {
  add("251125-070012",
      "{\"v\":1,\"ts\":\"2025-11-25T07:00:12.000Z\",\"type\":\"run_started\",\"title\":\"demo\",\"size\":\"small\","
      "\"device\":\"cpu\",\"cases\":3,\"version\":\"1\",\"ids\":[\"a\",\"b\",\"c\"]}\n"
      "{\"v\":1,\"ts\":\"2025-11-25T07:00:14.000Z\",\"type\":\"case_fin");
  const auto facts = read_record_facts(run_records(folder.path()).front());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->state(), "killed");
  EXPECT_EQ(facts->header.title, "demo");
  EXPECT_EQ(facts->header.cases, 3U);
}

TEST_F(Records, OfARunWhoseProcessDiedAfterItsLastEventHaveEnded) {
  add("251125-070012",
      "{\"v\":1,\"ts\":\"2025-11-25T07:00:12.000Z\",\"type\":\"run_started\",\"title\":\"demo\",\"size\":\"small\","
      "\"device\":\"cpu\",\"cases\":0,\"version\":\"1\",\"ids\":[]}\n"
      "{\"v\":1,\"ts\":\"2025-11-25T07:00:14.000Z\",\"type\":\"run_finished\",\"expanded\":1,\"counts\":{\"fail\":1},"
      "\"ledger_exact\":true,\"interrupted\":false,\"duration_ms\":2000,\"driver_cpu_ms\":1,\"exit_code\":100}\n");
  const auto facts = read_record_facts(run_records(folder.path()).front());
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->state(), "ended");
  EXPECT_EQ(facts->exit_code(), 100);
  EXPECT_EQ(facts->duration_ms, 2000);
}

TEST_F(Records, WithALineOfAnotherFormatAreNamedInAnError) {
  for (const char* const line : {R"({"type":1})", R"({"type":["run_finished"]})",
                                 R"({"type":"run_finished","counts":1})", R"({"type":"run_started","cases":"many"})"}) {
    add("251125-070012", fmt::format("{0}\n{0}\n", line));
    const RunRecord record = run_records(folder.path()).front();
    EXPECT_FALSE(read_record_header(record)) << line;
    EXPECT_THROW(read_record_facts(record), CommandError) << line;
  }
}

TEST_F(Records, WithoutASoundFileAreNamedInAnError) {
  add("251125-070012");
  write_file(folder / "251125-070012" / kRecordFile, "");
  EXPECT_THROW(read_record_facts(run_records(folder.path()).front()), CommandError);
}

TEST_F(Records, StandInTheStateFolderUnlessTheirFolderIsNamed) {
  const ScopedVariable state("XDG_STATE_HOME", "/state");
  EXPECT_EQ(records_folder(std::nullopt), "/state/cp-pool/runs");
  EXPECT_EQ(records_folder("/mine"), "/mine");
}

}  // namespace
}  // namespace cp_pool::test
