// Runs the scripts of `cp-pool completion` in their shells, with cp-pool in PATH.
#include <fmt/format.h>

#include "driver/cli/testing/started_program.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

// Returns the lines that a script prints in the shell, after the completion of cp-pool has been loaded.
std::vector<std::string> printed_by(const std::string& shell, const std::vector<std::string>& options,
                                    const std::string& script) {
  const std::string folder = std::filesystem::path{CP_POOL_PROGRAM}.parent_path();
  std::vector<std::string> argv{"env", fmt::format("PATH={}:{}", folder, std::getenv("PATH")), shell};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"-c", script});
  const Finished done = run_to_end(argv);
  EXPECT_THAT(done, exits(0, err(""))) << shell << " (tools/setup installs it): " << done.err;
  return done.out_lines();
}

std::vector<std::string> bash_offers(const std::string& line) {
  return printed_by("bash", {"--norc"},
                    fmt::format("source <(cp-pool completion bash)\nCOMP_LINE='{}' COMP_POINT={}\n_cp_pool\n"
                                "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                                line, line.size()));
}

std::vector<std::string> fish_offers(const std::string& line) {
  return printed_by("fish", {"--no-config"}, fmt::format("cp-pool completion fish | source\ncomplete -C '{}'", line));
}

// zsh completes on a terminal alone. So its functions for words and files are replaced here by ones that print their
// arguments.
std::vector<std::string> zsh_offers(const std::vector<std::string>& words) {
  std::string quoted;
  for (const std::string& word : words) quoted += fmt::format(" '{}'", word);
  return printed_by(
      "zsh", {"-f"},
      fmt::format("compdef() {{ print -r -- \"$@\" }}\n"
                  "_describe() {{ print -rl -- \"${{(@P)2}}\" }}\n"
                  "compadd() {{ shift 3; print -rl -- \"$@\" }}\n_files() {{ print '<files>' }}\n"
                  "cp-pool completion zsh > ${{TMPPREFIX}}-$$; source ${{TMPPREFIX}}-$$; rm ${{TMPPREFIX}}-$$\n"
                  "words=({}) CURRENT={}\n_cp_pool\ntrue",
                  quoted, words.size()));
}

TEST(BashCompletion, OffersCommandsOptionsValuesAndIds) {
  EXPECT_THAT(bash_offers("cp-pool su"), ElementsAre("submit"));
  EXPECT_THAT(bash_offers("cp-pool run --device "), IsSupersetOf({"auto", "cpu", "cuda"}));
  // Bash breaks words at =, so only the part after it is offered.
  EXPECT_THAT(bash_offers("cp-pool run --device=cu"), ElementsAre("cuda"));
  EXPECT_THAT(bash_offers("cp-pool submit id --set comm=a2a+"), ElementsAre("a2a+p2p"));
  EXPECT_THAT(bash_offers("cp-pool submit quick/causal/a2a/cp2/thd/"), Contains(testing::StartsWith("quick/causal/")));
}

TEST(FishCompletion, OffersCommandsWithTheirHelpAndValues) {
  EXPECT_THAT(fish_offers("cp-pool su"), ElementsAre(testing::StartsWith("submit\t")));
  EXPECT_THAT(fish_offers("cp-pool run --device cu"), ElementsAre("cuda"));
  EXPECT_THAT(fish_offers("cp-pool submit id --set causal="), ElementsAre("causal=false", "causal=true"));
}

TEST(ZshCompletion, OffersCommandsWithTheirHelpValuesAndFiles) {
  EXPECT_THAT(zsh_offers({"cp-pool", "su"}), ElementsAre("_cp_pool cp-pool", testing::StartsWith("submit:")));
  EXPECT_THAT(zsh_offers({"cp-pool", "run", "--matrix", "te-fl"}),
              ElementsAre("_cp_pool cp-pool", "te-flash:a shipped matrix", "<files>"));
  EXPECT_THAT(zsh_offers({"cp-pool", "submit", "id", "--set", "cp_"}), ElementsAre("_cp_pool cp-pool", "cp_size="));
}

}  // namespace
}  // namespace cp_pool::test
