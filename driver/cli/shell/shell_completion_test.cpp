#include "driver/cli/shell/shell_completion.h"

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/commands/command.h"

namespace cp_pool {
namespace {

using namespace ::testing;

// Asks for completions as the shell does, in a folder without files.
class ShellCompletion : public ::testing::Test {
 protected:
  ShellCompletion() : before_(std::filesystem::current_path()) { std::filesystem::current_path(folder.path()); }
  ~ShellCompletion() override { std::filesystem::current_path(before_); }

  [[nodiscard]] std::vector<std::string> offered(const std::string& typed) const {
    std::vector<std::string> words;
    for (const Candidate& candidate : shell_candidates(typed, context, command_candidates))
      words.push_back(candidate.word);
    return words;
  }

  test::TemporaryFolder folder;
  ShellContext context;

 private:
  std::filesystem::path before_;
};

TEST_F(ShellCompletion, OfALineAreItsCommandsFieldsAndCases) {
  EXPECT_THAT(offered(""), AllOf(IsSupersetOf({"submit", "set", "again", "cp_size="}), Not(Contains("te-flash/"))));
  EXPECT_THAT(offered("se"), ElementsAre("seed=", "seqlen_kv=", "seqlen_q=", "seqlens=", "seqlens_kv=", "set"));
  EXPECT_THAT(offered("te-f"), ElementsAre("te-flash/", "te-fp8/", "te-fused/"));
}

TEST_F(ShellCompletion, OfAnIdIsItsNextPart) {
  EXPECT_THAT(offered("te-flash/cp_1_0"), ElementsAre("te-flash/cp_1_0/"));
  EXPECT_THAT(offered("submit te-flash/cp_1_0/p2p/cp2/thd/bf16/"), Contains("te-flash/cp_1_0/p2p/cp2/thd/bf16/pad"));
  EXPECT_THAT(offered("explain te-flash/cp_1_0/"),
              AllOf(Contains("te-flash/cp_1_0/p2p/"), Each(StartsWith("te-flash/cp_1_0/"))));
  EXPECT_THAT(offered("list te-fl"), ElementsAre("te-flash/"));
  context.lookup = {"--matrix=quick"};
  EXPECT_THAT(offered("te-f"), IsEmpty()) << "only those of the shell's own matrix";
  EXPECT_THAT(offered("list te-f"), IsEmpty());
}

TEST_F(ShellCompletion, OfFieldsAreTheirNamesAndValues) {
  EXPECT_THAT(offered("set cp_"), ElementsAre("cp_size="));
  EXPECT_THAT(offered("set comm=a2a causal=t"), ElementsAre("causal=true"));
  EXPECT_THAT(offered("comm=a2"), UnorderedElementsAre("comm=a2a", "comm=a2a+p2p"));
  EXPECT_THAT(offered("cp_size=2 comm=all"), ElementsAre("comm=all_gather"));
  context.edits = {"comm=a2a", "window=64,0"};
  EXPECT_THAT(offered("unset "), ElementsAre("comm", "window"));
}

TEST_F(ShellCompletion, OfADashAreTheOptionsOfTheCommandThatIsMeant) {
  EXPECT_THAT(offered("a/b --no-d"), ElementsAre("--no-diagnosis"));
  EXPECT_THAT(offered("again --dev"), ElementsAre("--device"));
  EXPECT_THAT(offered("again --device cu"), ElementsAre("cuda"));
  EXPECT_THAT(offered("list --cou"), ElementsAre("--count"));
  EXPECT_THAT(offered("status --j"), ElementsAre("--json"));
  EXPECT_THAT(offered("help expl"), ElementsAre("explain"));
}

TEST_F(ShellCompletion, OffersNothingWhereNothingCanStand) {
  for (const char* const typed : {"again ", "diff x", "nonsense", "a/b ", "why "})
    EXPECT_THAT(offered(typed), IsEmpty()) << typed;
}

TEST_F(ShellCompletion, OfAPathAreFilesAndFolders) {
  test::write_file(folder / "case.json", "{}");
  std::filesystem::create_directories(folder / "cases" / "of_mine");
  EXPECT_THAT(offered("cas"), ElementsAre("case.json", "cases/"));
  EXPECT_THAT(offered("submit cases/"), ElementsAre("cases/of_mine/"));
  EXPECT_THAT(offered("dump cases/o"), ElementsAre("cases/of_mine/"));
  EXPECT_THAT(offered("dump no/such/"), IsEmpty());
}

}  // namespace
}  // namespace cp_pool
