// `cp-pool conformance` as a program: its exit codes and its lines.
#include <csignal>
#include <thread>

#include "driver/cli/testing/started_program.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

Finished conformance(std::vector<std::string> words) {
  words.insert(words.begin(), {CP_POOL_PROGRAM, "conformance", "--device", "cpu"});
  return run_to_end(std::move(words));
}

TEST(ConformanceCommand, Exits96ForAWorkerThatIsMissingEndsOrHangs) {
  const Finished missing = conformance({"--worker", "/no/such/worker"});
  EXPECT_EQ(missing.exit_code, 96);
  EXPECT_THAT(missing.out, AllOf(StartsWith("BROKEN    ready            "), HasSubstr("/no/such/worker"),
                                 HasSubstr(" (hint: "), HasSubstr("\n1 rule: 0 ok, 1 broken\n")));
  EXPECT_EQ(missing.err, "");

  EXPECT_THAT(conformance({"--worker", "sh -c 'echo no license >&2; exit 3'"}),
              exits(96, out(HasSubstr("died: exit 3"), HasSubstr("; last words of rank"), HasSubstr(": no license"))));

  EXPECT_THAT(conformance({"--worker", "sleep 1000", "--start-timeout", "100ms"}),
              exits(96, out(HasSubstr("not ready within 100 ms (--start-timeout)"))));
}

TEST(ConformanceCommand, Exits100ForABrokenRule) {
  // The scripted worker speaks the protocol on its fd 1, which breaks a rule. Its rank 1 never answers, so a short
  // deadline changes no verdict.
  EXPECT_THAT(conformance({"--worker", "python3 '" CP_POOL_SCRIPTED_WORKER "'", "--timeout", "500ms"}),
              exits(100, out(HasSubstr("\nBROKEN    stdout           fd 1 of rank 0"), HasSubstr(" (hint: "),
                             HasSubstr("\n20 rules: "))));
}

TEST(ConformanceCommand, Exits130WhenInterruptedAndLeavesNoProcess) {
  const TemporaryFolder folder;
  const std::string mark = (folder / "mark").string();
  Program program{
      {CP_POOL_PROGRAM, "conformance", "--worker",
       "sh -c 'echo $$ > \"" + mark + ".new\"; mv \"" + mark + ".new\" \"" + mark + "\"; exec sleep 1000'"}};
  while (!std::filesystem::exists(mark)) std::this_thread::yield();
  program.signal(SIGINT);
  EXPECT_THAT(program.wait(), exits(130, err("cp-pool: error: interrupted\n")));
  EXPECT_EQ(::kill(std::stoi(read_file(mark)), 0), -1);
}

TEST(ConformanceCommand, Exits2ForADeadlineThatIsNone) {
  EXPECT_EQ(conformance({"--timeout", "soon"}).exit_code, 2);
  EXPECT_EQ(conformance({"--worker", ""}).exit_code, 2);
}

TEST(ConformanceCommand, HelpSaysWhatTheVerdictsMean) {
  EXPECT_THAT(run_to_end({CP_POOL_PROGRAM, "conformance", "--help"}),
              exits(0, out(HasSubstr("BROKEN "), HasSubstr("untested "), HasSubstr("--start-timeout"),
                           HasSubstr("conformance: the worker never got ready"))));
}

}  // namespace
}  // namespace cp_pool::test
