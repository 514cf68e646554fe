// `cp-pool shell` on a terminal: its prompt, Tab, Ctrl-C, Ctrl-D and the history.
#include "driver/cli/testing/command_line_fixture.h"
#include "driver/cli/testing/terminal.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCtrlC = "\x03";
constexpr const char* kCtrlD = "\x04";
constexpr const char* kUp = "\x1b[A";

class ShellOnATerminal : public CommandLine {
 protected:
  [[nodiscard]] Words words() const {
    return {kProgram, "shell", "--matrix", path("demo.json"), "--worker", kWorker, "--grace", "100ms"};
  }

  ScopedVariable runtime{"XDG_RUNTIME_DIR", folder.path().c_str()};
  ScopedVariable state{"XDG_STATE_HOME", folder.path().c_str()};
};

TEST_F(ShellOnATerminal, CompletesWordsAndFindsEarlierLinesAgain) {
  Terminal shell{words()};
  shell.until("cp-pool> ");
  shell.type("agai\t");
  shell.until("again ");
  shell.type(kCtrlC);
  EXPECT_THAT(shell.until("cp-pool> "), HasSubstr("^C\n")) << "a line that is dropped runs nothing";
  shell.type("set comm=a2\t");
  shell.until("comm=a2a");
  shell.type("\t");
  shell.until("comm=a2a  ");
  shell.until("comm=a2a+p2p\n");
  shell.type("\n");
  shell.until("cp-pool [comm=a2a]> ");
  shell.type("demo/pass_\t\t");
  shell.until("demo/pass_2/p2p/cp1/bshd/fp32 ");
  shell.type(kCtrlC);
  shell.until("cp-pool [comm=a2a]> ");
  shell.type(kCtrlD);
  EXPECT_EQ(shell.wait(), 0);

  Terminal next{words()};
  next.until("cp-pool> ");
  next.type(kUp);
  next.until("set comm=a2a");
  next.type("\n");
  next.until("cp-pool [comm=a2a]> ");
  next.type("quit\n");
  EXPECT_EQ(next.wait(), 0);
}

TEST_F(ShellOnATerminal, CtrlCCancelsTheCaseThatRunsAndNothingElse) {
  Terminal shell{words()};
  shell.until("cp-pool> ");
  shell.type("demo/hang/p2p/cp1/bshd/fp32\n");
  shell.until("(small) on cpu");
  shell.until(" demo/hang/p2p/cp1/bshd/fp32");  // the live view shows that the case runs
  shell.type(kCtrlC);
  shell.until("interrupted: the run was stopped before its end");
  shell.until("cp-pool> ");
  shell.type("demo/pass/p2p/cp1/bshd/fp32\n");
  EXPECT_THAT(shell.until("1 expanded = 1 pass"), Not(HasSubstr("is started"))) << "the service is the same";
  shell.until("cp-pool> ");
  shell.type(kCtrlC);
  shell.until("cp-pool> ");
  shell.type("nonsense\n");
  shell.until("cp-pool: error: 'nonsense' is no command");
  shell.until("cp-pool> ");
  shell.type(kCtrlD);
  EXPECT_EQ(shell.wait(), 0) << "whatever failed";
}

}  // namespace
}  // namespace cp_pool::test
