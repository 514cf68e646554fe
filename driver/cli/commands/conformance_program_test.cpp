// `cp-pool conformance` as a program: its exit codes and its lines.
#include <csignal>
#include <thread>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/testing/started_program.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

Finished conformance(std::vector<std::string> words) {
  words.insert(words.begin(), {CP_POOL_PROGRAM, "conformance", "--device", "cpu"});
  return Program{std::move(words)}.wait();
}

TEST(ConformanceCommand, Exits96ForAWorkerThatIsMissingEndsOrHangs) {
  const Finished missing = conformance({"--worker", "/no/such/worker"});
  EXPECT_EQ(missing.exit_code, 96);
  EXPECT_THAT(missing.out, AllOf(StartsWith("BROKEN    ready            "), HasSubstr("/no/such/worker"),
                                 HasSubstr(" (hint: "), HasSubstr("\n1 rule: 0 ok, 1 broken\n")));
  EXPECT_EQ(missing.err, "");

  const Finished ends = conformance({"--worker", "sh -c 'echo no license >&2; exit 3'"});
  EXPECT_EQ(ends.exit_code, 96);
  EXPECT_THAT(ends.out, AllOf(HasSubstr("died: exit 3"), HasSubstr("; last words of rank"), HasSubstr(": no license")));

  const Finished hangs = conformance({"--worker", "sleep 1000", "--start-timeout", "100ms"});
  EXPECT_EQ(hangs.exit_code, 96);
  EXPECT_THAT(hangs.out, HasSubstr("not ready within 100 ms (--start-timeout)"));
}

TEST(ConformanceCommand, Exits100ForABrokenRule) {
  // The scripted worker speaks the protocol on its fd 1, which breaks a rule. Its rank 1 never answers, so a short
  // deadline changes no verdict.
  const Finished done = conformance({"--worker", "python3 '" CP_POOL_SCRIPTED_WORKER "'", "--timeout", "500ms"});
  EXPECT_EQ(done.exit_code, 100) << done.out << done.err;
  EXPECT_THAT(done.out, AllOf(HasSubstr("\nBROKEN    stdout           fd 1 of rank 0"), HasSubstr(" (hint: "),
                              HasSubstr("\n20 rules: ")));
}

TEST(ConformanceCommand, Exits130WhenInterruptedAndLeavesNoProcess) {
  const TemporaryFolder folder;
  const std::string mark = (folder / "mark").string();
  Program program{
      {CP_POOL_PROGRAM, "conformance", "--worker",
       "sh -c 'echo $$ > \"" + mark + ".new\"; mv \"" + mark + ".new\" \"" + mark + "\"; exec sleep 1000'"}};
  while (!std::filesystem::exists(mark)) std::this_thread::yield();
  program.signal(SIGINT);
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 130);
  EXPECT_EQ(done.err, "cp-pool: error: interrupted\n");
  EXPECT_EQ(::kill(std::stoi(read_file(mark)), 0), -1);
}

TEST(ConformanceCommand, Exits2ForADeadlineThatIsNone) {
  EXPECT_EQ(conformance({"--timeout", "soon"}).exit_code, 2);
  EXPECT_EQ(conformance({"--worker", ""}).exit_code, 2);
}

TEST(ConformanceCommand, HelpSaysWhatTheVerdictsMean) {
  const Finished help = Program{{CP_POOL_PROGRAM, "conformance", "--help"}}.wait();
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("BROKEN "), HasSubstr("untested "), HasSubstr("--start-timeout"),
                              HasSubstr("conformance: the worker never got ready")));
}

}  // namespace
}  // namespace cp_pool::test
