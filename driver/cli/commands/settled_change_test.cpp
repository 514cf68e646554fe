#include "driver/cli/commands/settled_change.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Watches a worker, which is needed, and a library, under a clock that the test moves.
class SettledChangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(worker, "one");
    write_file(library, "one");
    change.add_needed({worker});
    change.add({library});
  }

  // Looks when this much time has passed.
  std::vector<fs::path> look(milliseconds after) { return change.look(now += after); }

  test::TemporaryFolder folder;
  fs::path worker = folder / "worker";
  fs::path library = folder / "lib.so";
  SettledChange change;
  SettledChange::Time now;
};

TEST_F(SettledChangeTest, NothingChangesByItself) {
  EXPECT_THAT(look(milliseconds{0}), IsEmpty());
  EXPECT_THAT(look(milliseconds{10000}), IsEmpty());
  EXPECT_FALSE(change.pending());
  EXPECT_THAT(change.files(), ElementsAre(worker, library));
}

TEST_F(SettledChangeTest, AChangeIsCompleteWhenNothingHasChangedForAWhile) {
  write_file(worker, "half");
  EXPECT_THAT(look(milliseconds{0}), IsEmpty());
  EXPECT_TRUE(change.pending());
  EXPECT_THAT(look(milliseconds{199}), IsEmpty());
  write_file(worker, "the whole");
  EXPECT_THAT(look(milliseconds{1}), IsEmpty());
  write_file(library, "another one");
  EXPECT_THAT(look(milliseconds{199}), IsEmpty());
  EXPECT_THAT(look(milliseconds{199}), IsEmpty());
  EXPECT_THAT(look(milliseconds{1}), ElementsAre(worker, library));
}

TEST_F(SettledChangeTest, WhatWasAcceptedIsNoChangeAnyMoreAndTheNextOneIs) {
  write_file(worker, "second");
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(worker));
  change.accept();
  EXPECT_FALSE(change.pending());
  EXPECT_THAT(look(milliseconds{200}), IsEmpty());
  write_file(library, "second");
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(library));
}

TEST_F(SettledChangeTest, ANeededFileThatIsMissingIsWaitedFor) {
  fs::remove(worker);
  EXPECT_THAT(look(milliseconds{0}), IsEmpty());
  EXPECT_THAT(change.missing(), IsEmpty());  // it may be being replaced
  EXPECT_THAT(look(milliseconds{200}), IsEmpty());
  EXPECT_THAT(change.missing(), ElementsAre(worker));
  EXPECT_THAT(look(milliseconds{1000000}), IsEmpty());
  EXPECT_TRUE(change.pending());
  write_file(worker, "");
  EXPECT_THAT(look(milliseconds{0}), IsEmpty());
  EXPECT_THAT(change.missing(), IsEmpty());
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(worker));
}

TEST_F(SettledChangeTest, AnotherFileThatIsRemovedIsNoChangeUntilItComesBack) {
  fs::remove(library);
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{1999}), IsEmpty());
  EXPECT_THAT(change.missing(), IsEmpty());
  EXPECT_TRUE(change.pending());
  EXPECT_THAT(look(milliseconds{1}), IsEmpty());
  EXPECT_FALSE(change.pending());
  write_file(library, "one");
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(library));
}

TEST_F(SettledChangeTest, AChangeWaitsOnlySoLongForAFileThatMayHaveBeenRemoved) {
  fs::remove(library);
  write_file(worker, "second");
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{1999}), IsEmpty());
  EXPECT_THAT(look(milliseconds{1}), ElementsAre(worker));
  change.accept();
  EXPECT_THAT(look(milliseconds{2000}), IsEmpty());
}

TEST_F(SettledChangeTest, AChangeThatIsTakenBackIsNone) {
  fs::rename(worker, folder / "aside");
  EXPECT_THAT(look(milliseconds{0}), IsEmpty());
  fs::rename(folder / "aside", worker);
  EXPECT_THAT(look(milliseconds{200}), IsEmpty());
  EXPECT_FALSE(change.pending());
}

TEST_F(SettledChangeTest, FilesThatAreAddedOnceMoreStayWhatTheyWere) {
  write_file(worker, "second");
  change.add_needed({worker});
  change.add({worker, library, library});
  EXPECT_THAT(change.files(), ElementsAre(worker, library));
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(worker));
}

TEST_F(SettledChangeTest, AFileThatIsAddedDuringAChangeIsWatchedToo) {
  write_file(worker, "second");
  look(milliseconds{0});
  const fs::path other = folder / "other";
  write_file(other, "one");
  change.add({other});
  EXPECT_THAT(look(milliseconds{200}), IsEmpty());
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(worker));
  change.accept();
  write_file(other, "second");
  look(milliseconds{0});
  EXPECT_THAT(look(milliseconds{200}), ElementsAre(other));
}

}  // namespace
}  // namespace cp_pool
