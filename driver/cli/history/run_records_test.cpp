#include "driver/cli/history/run_records.h"

#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/command_error.h"
#include "driver/cli/history/run_recorder.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using test::write_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Records : public ::testing::Test {
 protected:
  void add(const std::string& id, const std::string& events = "") {
    std::filesystem::create_directories(folder / id);
    write_file(folder / id / kRecordEvents, events);
    write_file(folder / id / kRecordFile, "{}\n");
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

  test::TemporaryFolder folder;
};

TEST_F(Records, AreListedByTimeAndOtherFoldersAreNot) {
  add("251125-070012b");
  add("251125-070012");
  add("251124-235959");
  std::filesystem::create_directory(folder / "notes");
  std::filesystem::create_directory(folder / "251126-000000");  // is being made: without run.json
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
  EXPECT_THAT(meant("26"), HasSubstr("no recorded run is called '26'"));
  EXPECT_THAT(meant(""), HasSubstr("no recorded run"));
}

TEST_F(Records, ArePrunedByCountAgeAndSizeTheOldestFirst) {
  const std::vector<std::string> all{"251101-000000", "251102-000000", "251103-000000"};
  for (const std::string& id : all) add(id, std::string(700 << 10U, '\n'));
  const RecordLimits none{.count = 0, .age = std::chrono::hours{0}, .mebibytes = 0};
  prune_records(folder.path(), none, "");
  EXPECT_EQ(ids(), all);
  RecordLimits size = none;
  size.mebibytes = 2;
  prune_records(folder.path(), size, "");
  EXPECT_THAT(ids(), ElementsAre("251102-000000", "251103-000000"));
  std::filesystem::last_write_time(folder / "251103-000000",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours{3});
  RecordLimits age = none;
  age.age = std::chrono::hours{2};
  prune_records(folder.path(), age, "");
  EXPECT_THAT(ids(), ElementsAre("251102-000000"));
  RecordLimits count = none;
  count.count = 1;
  add("251101-000000");
  prune_records(folder.path(), count, "251101-000000");
  EXPECT_THAT(ids(), ElementsAre("251101-000000", "251102-000000")) << "one is to be kept";
  prune_records(folder.path(), count, "");
  EXPECT_THAT(ids(), ElementsAre("251102-000000"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "nothing is left of them";
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

TEST_F(Records, StandInTheStateFolderUnlessTheirFolderIsNamed) {
  const test::ScopedVariable state("XDG_STATE_HOME", "/state");
  EXPECT_EQ(records_folder(std::nullopt), "/state/cp-pool/runs");
  EXPECT_EQ(records_folder("/mine"), "/mine");
}

}  // namespace
}  // namespace cp_pool
