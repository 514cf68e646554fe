// Tests the live view of `cp-pool run` on a real terminal, and requests for the status of a run.
#include <cstdio>
#include <thread>

#include "driver/cli/testing/command_line_fixture.h"
#include "driver/cli/testing/terminal.h"

namespace cp_pool::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using LiveView = CommandLine;

TEST_F(LiveView, TheKeyTSaysWhatRunsAndTheRunGoesOn) {
  Words words = program_words("model=hang", {"--timeout", "60s"});
  Terminal terminal{words};
  terminal.until("   0:");  // for how long the case has been running: a busy machine may miss any given second
  terminal.until(" demo/hang/p2p/cp1/bshd/fp32");
  terminal.type("t");
  terminal.until("cp-pool: status: 0 of 1 finished; 1 case running, 0 pools starting, 0 pools idle");
  terminal.until("cp-pool: status: demo/hang/p2p/cp1/bshd/fp32 has been running for ");
  terminal.until(" on pool cpu/1 #1 (1 rank, process");
  terminal.until("demo/hang/p2p/cp1/bshd/fp32");  // the live line is drawn again
  terminal.type("\x03");
  terminal.until("1 expanded = 0 pass + 0 fail + 1 cancelled");
  EXPECT_EQ(terminal.wait(), 130);
}

// As in a CI job, there is neither a terminal nor a key.
TEST_F(LiveView, SIGUSR1SaysWhatRunsOnStderrAndStdoutHasNoControlSequence) {
  Words words = program_words("model=pass | model=hang", {"--timeout", "6s", "--events", path("e")});
  Program program{words};
  while (program.running() && !has_text(path("e"), R"("case_started","index":1)")) std::this_thread::yield();
  program.signal(SIGUSR1);
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 100);
  EXPECT_THAT(done.err,
              HasSubstr("cp-pool: status: 1 of 2 finished; 1 case running, 0 pools starting, 0 pools idle\n"));
  EXPECT_THAT(done.err, HasSubstr("cp-pool: status: demo/hang/p2p/cp1/bshd/fp32 has been running for "));
  EXPECT_THAT(done.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(done.out, HasSubstr("pass "));
}

// A terminal with the screen of a real one, resized while the program runs.
class Tmux {
 public:
  Tmux(const std::string& socket, const std::string& command) : tmux_{"tmux -S '" + socket + "' -f /dev/null "} {
    call("new-session -d -x 80 -y 24 \"" + command + "\"");
  }
  Tmux(const Tmux&) = delete;
  Tmux& operator=(const Tmux&) = delete;
  ~Tmux() { call("kill-server"); }

  std::string call(const std::string& words) const {
    FILE* const pipe = ::popen((tmux_ + words + " 2>&1").c_str(), "r");
    std::string out;
    for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
    if (pipe != nullptr) ::pclose(pipe);
    return out;
  }

  // Returns the screen once it shows the text, or after a minute.
  [[nodiscard]] std::string shown_with(const std::string& text) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    std::string shown;
    do {
      shown = call("capture-pane -p");
    } while (shown.find(text) == std::string::npos && std::chrono::steady_clock::now() < deadline);
    return shown;
  }

 private:
  std::string tmux_;
};

std::size_t count_of_lines(const std::string& text, const std::string& part) {
  std::istringstream lines{text};
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

TEST_F(LiveView, IsWholeAndStandsOnceAtEveryWidth) {
  if (std::system("tmux -V > /dev/null 2>&1") != 0) GTEST_SKIP() << "no tmux";
  std::string command = "env NO_COLOR=1 '" + kProgram + "'";
  for (const std::string& word : run_words("model=hang", {"--timeout", "600s"})) {
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string{"'\\''"} : std::string{c};
    command += " '" + quoted + "'";
  }
  write_file(path("go"), "#!/bin/sh\nexec " + command + "\n");
  const Tmux tmux{path("tmux"), "sh " + path("go")};
  const std::string id = "demo/hang/p2p/cp1/bshd/fp32";
  for (const auto& [columns, part] : std::vector<std::pair<std::string, std::string>>{
           {"80", id}, {"200", id}, {"80", id}, {"32", "0:"}, {"200", id}}) {
    tmux.call("resize-window -x " + columns + " -y 24");
    const std::string before = tmux.shown_with(part);
    // Waits for the next frame, drawn at the new width: the age in it has changed.
    const std::size_t at = before.find(" 0:");
    ASSERT_NE(at, std::string::npos) << before;
    std::string shown = before;
    while (shown == before) shown = tmux.call("capture-pane -p");
    EXPECT_EQ(count_of_lines(shown, "demo/h"), 1U) << columns << " columns:\n" << shown;
    EXPECT_EQ(count_of_lines(shown, "0/1"), 1U) << columns << " columns:\n" << shown;
    EXPECT_EQ(count_of_lines(shown, id), columns == "32" ? 0U : 1U) << columns << " columns:\n" << shown;
    // A terminal that becomes narrower may move lines out of sight; -J joins the rows of a line.
    const std::string all = tmux.call("capture-pane -p -J -S -");
    EXPECT_EQ(count_of_lines(all, "pool cpu/1 #1 ready"), 1U) << "the line above, " << columns << " columns:\n" << all;
  }
}

}  // namespace
}  // namespace cp_pool::test
