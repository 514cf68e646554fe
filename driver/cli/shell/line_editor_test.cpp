#include "driver/cli/shell/line_editor.h"

#include <sys/stat.h>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using namespace ::testing;

TEST(CommonBeginning, IsWhatAllCandidatesShare) {
  EXPECT_EQ(common_beginning({}), "");
  EXPECT_EQ(common_beginning({{"te-flash/", ""}}), "te-flash/");
  EXPECT_EQ(common_beginning({{"te-flash/", ""}, {"te-fused/", ""}}), "te-f");
  EXPECT_EQ(common_beginning({{"set", ""}, {"again", ""}}), "");
}

TEST(CandidateColumns, FillTheTerminalColumnByColumn) {
  EXPECT_EQ(candidate_columns({{"a", ""}, {"bbb", ""}, {"cc", ""}}, 10), "a    cc\nbbb\n");
  EXPECT_EQ(candidate_columns({{"a", ""}, {"bbb", ""}, {"cc", ""}}, 2), "a\nbbb\ncc\n") << "narrower than a word";
}

TEST(CandidateColumns, LeaveOutWhatAllHaveBeforeTheirLastPart) {
  EXPECT_EQ(candidate_columns({{"te-flash/cp_1/", ""}, {"te-flash/cp_2/", ""}}, 80), "cp_1/  cp_2/\n");
}

TEST(ShellHistory, IsThereForTheNextShellAndForItsUserAlone) {
  const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "state" / "cp-pool" / "shell_history";
  ShellHistory first{file};
  EXPECT_THAT(first.lines(), IsEmpty());
  for (const char* const line : {"a/b", "again", "again", "set comm=a2a"}) EXPECT_EQ(first.add(line), "");
  EXPECT_THAT(ShellHistory{file}.lines(), ElementsAre("a/b", "again", "set comm=a2a"));
  struct stat status{};
  ASSERT_EQ(::stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(ShellHistory, OfTwoShellsLosesNoLine) {
  const test::TemporaryFolder folder;
  ShellHistory one{folder / "h"};
  ShellHistory other{folder / "h"};
  (void)one.add("of one");
  (void)other.add("of the other");
  (void)one.add("of one again");
  EXPECT_THAT(ShellHistory{folder / "h"}.lines(), ElementsAre("of one", "of the other", "of one again"));
}

TEST(ShellHistory, DoesNotGrowForEver) {
  const test::TemporaryFolder folder;
  std::string text;
  for (std::size_t i = 0; i < 2 * kMostShellHistory + 1; ++i) text += std::to_string(i) + '\n';
  test::write_file(folder / "h", text);
  const ShellHistory history{folder / "h"};
  EXPECT_THAT(history.lines(), SizeIs(kMostShellHistory));
  EXPECT_EQ(history.lines().back(), std::to_string(2 * kMostShellHistory));
  EXPECT_LT(test::read_file(folder / "h").size(), text.size());
  EXPECT_EQ(ShellHistory{folder / "h"}.lines(), history.lines());
}

TEST(ShellHistory, SaysOnceThatItCannotBeWritten) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "file", "");
  ShellHistory history{folder / "file" / "h"};
  EXPECT_THAT(history.add("a/b"), HasSubstr("cannot write " + (folder / "file" / "h").string()));
  EXPECT_EQ(history.add("c/d"), "");
  EXPECT_THAT(history.lines(), ElementsAre("a/b", "c/d")) << "the shell itself still has them";
}

TEST(ShellHistory, IsBelowTheStateFolder) {
  const test::ScopedVariable state("XDG_STATE_HOME", "/state");
  EXPECT_EQ(shell_history_file(), "/state/cp-pool/shell_history");
}

}  // namespace
}  // namespace cp_pool
