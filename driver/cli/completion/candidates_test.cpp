#include <sstream>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/program_paths.h"
#include "driver/cli/testing/parsed_command_line.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

using namespace ::testing;

constexpr const char* kFiles = "<files>";

// Returns the words that are offered for the last of `words`, which are those after cp-pool.
std::vector<std::string> offered(std::vector<std::string> words) {
  words.insert(words.begin(), {"completion", "words"});
  std::vector<std::string> out;
  std::istringstream lines{test::parse_as<PrintText>(words).text};
  for (std::string line; std::getline(lines, line);) out.push_back(line.substr(0, line.find('\t')));
  return out;
}

TEST(Candidates, OfTheFirstWordAreTheCommandsAndOptionsOfTheProgram) {
  EXPECT_THAT(offered({""}),
              AllOf(Contains("run"), Contains("submit"), Contains("completion"), Not(Contains("--man"))));
  EXPECT_THAT(offered({"su"}), ElementsAre("submit"));
  EXPECT_THAT(offered({"--m"}), ElementsAre("--man"));
  EXPECT_THAT(offered({"nonsense"}), IsEmpty());
  EXPECT_THAT(offered({"nonsense", ""}), IsEmpty());
  EXPECT_THAT(offered({"help", "ex"}), ElementsAre("explain"));
}

TEST(Candidates, OfADashAreTheOptionsOfTheCommandWithTheirHelp) {
  EXPECT_THAT(offered({"run", "--jun"}), ElementsAre("--junit"));
  EXPECT_THAT(offered({"run", "-"}), AllOf(Contains("--matrix"), Contains("-k"), Not(Contains("--json"))));
  EXPECT_THAT(offered({"list", "--j"}), ElementsAre("--json"));
  EXPECT_THAT(test::parse_as<PrintText>({"completion", "words", "run", "--jun"}).text,
              StartsWith("--junit\tWrite a JUnit XML report"));
}

TEST(Candidates, OfAValueAreTheWordsOfItsChoice) {
  EXPECT_THAT(offered({"run", "--device", ""}), UnorderedElementsAre("auto", "cpu", "cuda"));
  EXPECT_THAT(offered({"run", "--device", "cu"}), ElementsAre("cuda"));
  EXPECT_THAT(offered({"run", "--device=cu"}), ElementsAre("--device=cuda"));
  EXPECT_THAT(offered({"run", "--size", "f"}), ElementsAre("full"));
  EXPECT_THAT(offered({"run", "--timeout", ""}), IsEmpty());
}

TEST(Candidates, OfAMatrixAreTheShippedOnesAndFiles) {
  std::vector<std::string> all = shipped_matrices();
  all.emplace_back(kFiles);
  EXPECT_THAT(offered({"run", "--matrix", ""}), ElementsAreArray(all));
  EXPECT_THAT(offered({"run", "--matrix", "te-fl"}), ElementsAre("te-flash", kFiles));
  EXPECT_THAT(offered({"run", "--matrix", "quick", "te-fl"}), ElementsAre("te-flash", kFiles));
}

TEST(Candidates, OfACaseAreTheIdsOfTheMatricesThatAreNamed) {
  const std::vector<std::string> of_all = offered({"submit", "te-flash/cp_1_0/p2p/cp2/thd/"});
  EXPECT_THAT(of_all, AllOf(Contains("te-flash/cp_1_0/p2p/cp2/thd/bf16/pad"), Contains(kFiles)));
  EXPECT_THAT(offered({"submit", "--matrix", "quick", "te-flash/"}), ElementsAre(kFiles));
  const std::vector<std::string> ids = offered({"run", "--matrix", "quick", "--filter", "quick/causal/p2p/"});
  EXPECT_GT(ids.size(), 1U);
  EXPECT_THAT(ids, Each(StartsWith("quick/causal/p2p/")));
}

TEST(Candidates, OfAnEditAreFieldsAndTheirValues) {
  EXPECT_THAT(offered({"submit", "id", "--set", "cp_"}), ElementsAre("cp_size="));
  EXPECT_THAT(offered({"submit", "id", "--set", "comm=a2a"}), UnorderedElementsAre("comm=a2a", "comm=a2a+p2p"));
  EXPECT_THAT(offered({"submit", "id", "--set", "causal="}), UnorderedElementsAre("causal=true", "causal=false"));
  EXPECT_THAT(offered({"submit", "id", "--set", "nonsense="}), IsEmpty());
}

TEST(Candidates, OfAnEarlierRunAreTheRecordedOnes) {
  const test::TemporaryFolder folder;
  const test::ScopedVariable state("XDG_STATE_HOME", folder.path().c_str());
  EXPECT_THAT(offered({"show", "l"}), ElementsAre("last"));
  for (const char* id : {"251124-235959", "251125-070012"}) {
    std::filesystem::create_directories(folder / "cp-pool/runs" / id);
    test::write_file(folder / "cp-pool/runs" / id / "run.json", "{}");
  }
  EXPECT_THAT(offered({"diff", "25"}), ElementsAre("251124-235959", "251125-070012"));
  EXPECT_THAT(offered({"run", "--rerun-failed", "251125"}), ElementsAre("251125-070012", kFiles));
  EXPECT_THAT(offered({"run", "--baseline", "la"}), ElementsAre("last", kFiles));
}

TEST(Candidates, OfAPathAreFiles) {
  EXPECT_THAT(offered({"run", "--junit", "rep"}), ElementsAre(kFiles));
  EXPECT_THAT(offered({"report", "e"}), ElementsAre(kFiles));
}

TEST(Completion, RefusesAShellThatIsNone) {
  EXPECT_THAT(test::usage_error({"completion", "tcsh"}), StartsWith("'tcsh' is none of bash, zsh, fish"));
}

}  // namespace
}  // namespace cp_pool
