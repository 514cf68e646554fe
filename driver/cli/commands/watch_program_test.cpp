// Tests when `cp-pool watch` starts a round, what the round runs, and how the command ends.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/testing/command_line_fixture.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using test::Finished;
using test::is_one_error;
using test::json_lines;
using test::kProgram;
using test::Program;
using test::read_file;
using test::Words;
using test::write_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Runs `cp-pool watch` on demo.json with a copy of the scripted worker, which a test edits.
class WatchProgram : public test::CommandLine {
 protected:
  void SetUp() override {
    CommandLine::SetUp();
    write_file(worker, script);
  }

  void start(const std::string& filter, const Words& more = {}) {
    Words words = run_words(filter, more);
    words.front() = "watch";
    *(std::ranges::find(words, "--worker") + 1) = "python3 '" + worker.string() + "'";
    words.insert(words.begin(), kProgram);
    program.emplace(words, Program::Redirect{.out = path("out")});
  }

  // Waits for `text` in the output, from where the last call found its text. Returns the output up to its end.
  std::string wait_for(const std::string& text) {
    constexpr std::chrono::seconds kGiveUp{120};  // reached only if the text never comes
    const auto limit = std::chrono::steady_clock::now() + kGiveUp;
    for (;;) {
      const std::string out = fs::exists(path("out")) ? read_file(path("out")) : "";
      const std::size_t at = out.find(text, read_);
      if (at != std::string::npos) {
        const std::size_t begin = std::exchange(read_, at + text.size());
        return out.substr(begin, read_ - begin);
      }
      if (std::chrono::steady_clock::now() > limit) throw std::runtime_error("no '" + text + "' in: " + out);
      std::this_thread::yield();
    }
  }

  // Waits for the line that ends a round, and returns it.
  std::string wait_for_round(int number) {
    for (;;) {
      const std::string text = wait_for("; Ctrl-C ends\n");
      const std::string line = text.substr(text.rfind('\n', text.size() - 2) + 1);
      if (line.starts_with("round " + std::to_string(number) + ": ")) return line;
    }
  }

  // Saves as an editor does: a new file takes the name.
  void save_worker(const std::string& text) {
    write_file(path("worker.new"), text);
    fs::rename(path("worker.new"), worker);
  }

  int end(int signal) {
    program->signal(signal);
    const Finished finished = program->wait();
    err = finished.err;
    return finished.exit_code;
  }

  // Returns the script with its failures turned into passes.
  [[nodiscard]] std::string mended() const {
    std::string text = script;
    const std::string fails = R"(if model in ("fail", "diagnosed"):)";
    text.replace(text.find(fails), fails.size(), "if model == 'nothing':");
    return text;
  }

  const std::string script = read_file(CP_POOL_SCRIPTED_WORKER);
  const fs::path worker = folder / "worker.py";
  std::optional<Program> program;
  std::string err;

 private:
  std::size_t read_ = 0;
};

TEST_F(WatchProgram, AChangeOfTheWorkerStartsARoundThatBeginsWithTheFailuresOfTheLast) {
  start("model=pass* | model=fail", {"--events", path("e")});
  EXPECT_THAT(wait_for_round(1), HasSubstr("1 failed, 2 passed in "));
  save_worker(script + "\n");
  EXPECT_EQ(wait_for(" changed\n"), "round 2: " + worker.string() + " changed\n");
  EXPECT_THAT(wait_for_round(2), HasSubstr("(fixed: 0, new failures: 0)"));
  std::vector<std::string> models;
  for (const auto& line : json_lines(read_file(path("e")))) {
    if (line["type"] == "case_finished") models.push_back(line["case"]["model"]);
  }
  EXPECT_THAT(models, ElementsAre("fail", "pass", "pass_2"));
  EXPECT_EQ(end(SIGINT), 100);
  EXPECT_EQ(err, "");
}

TEST_F(WatchProgram, WhatWasFixedIsSaidAndTheExitCodeIsThatOfTheLastRound) {
  start("model=pass | model=fail");
  EXPECT_THAT(wait_for_round(1), HasSubstr("1 failed, 1 passed in "));
  save_worker(mended());
  EXPECT_THAT(wait_for_round(2), HasSubstr("2 passed in "));
  EXPECT_EQ(end(SIGTERM), 0);
  EXPECT_THAT(read_file(path("out")), HasSubstr("(fixed: 1, new failures: 0)"));
}

TEST_F(WatchProgram, AChangeDuringARoundStopsItAndStartsAnother) {
  start("model=hang", {"--grace", "50ms"});
  (void)wait_for("ready in ");
  std::string text = script;
  text.replace(text.find("time.sleep(3600)\n    elif model == \"glued\""), 16, "pass");
  save_worker(text);
  (void)wait_for("1 cancelled");
  EXPECT_THAT(wait_for_round(2), Not(HasSubstr("failed")));
  EXPECT_EQ(end(SIGINT), 0);
}

TEST_F(WatchProgram, CtrlCDuringTheFirstRoundIsAnInterruptedRun) {
  start("model=hang", {"--grace", "50ms"});
  (void)wait_for("ready in ");
  EXPECT_EQ(end(SIGINT), 130);
  EXPECT_THAT(err, HasSubstr("cp-pool: interrupted: "));
}

TEST_F(WatchProgram, CtrlCDuringALaterRoundGivesTheExitCodeOfTheOneBefore) {
  start("model=fail", {"--grace", "50ms"});
  (void)wait_for_round(1);
  std::string text = script;
  const std::string fails = R"(if model in ("fail", "diagnosed"):)";
  text.replace(text.find(fails), fails.size(), "if model == 'fail': time.sleep(3600)\n    if False:");
  save_worker(text);
  (void)wait_for("round 2: ");
  (void)wait_for("ready in ");
  EXPECT_EQ(end(SIGINT), 100);
}

TEST_F(WatchProgram, AWorkerThatIsRemovedIsWaitedFor) {
  start("model=pass");
  (void)wait_for_round(1);
  fs::remove(worker);
  EXPECT_THAT(wait_for("to appear\n"), HasSubstr("waiting for " + worker.string()));
  write_file(worker, script);
  EXPECT_THAT(wait_for_round(2), HasSubstr("1 passed in "));
  EXPECT_EQ(end(SIGINT), 0);
}

TEST_F(WatchProgram, AWorkerThatCannotStartIsARoundThatJudgedNothing) {
  save_worker("def half(\n");
  start("model=pass");
  EXPECT_THAT(wait_for_round(1), HasSubstr("0 passed, 1 not judged in "));
  save_worker(script);
  EXPECT_THAT(wait_for_round(2), HasSubstr("1 passed in "));
  EXPECT_EQ(end(SIGINT), 0);
}

TEST_F(WatchProgram, ALibraryThatARankHasMappedIsWatchedFromThenOn) {
  const fs::path library = folder / "lib.so";
  write_file(library, std::string(4096, 'x'));
  // The worker maps the library as a loader maps code.
  write_file(worker, "import mmap\nwith open('" + library.string() +
                         "', 'rb') as file:\n    kept = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, "
                         "mmap.PROT_READ | mmap.PROT_EXEC)\n" +
                         script.substr(script.find("import json")));
  start("model=pass");
  ASSERT_THAT(wait_for_round(1), HasSubstr("1 passed in "));
  fs::remove(library);
  write_file(library, std::string(4096, 'y'));
  EXPECT_EQ(wait_for(" changed\n"), "round 2: " + library.string() + " changed\n");
  EXPECT_THAT(wait_for_round(2), HasSubstr("1 passed in "));
  EXPECT_EQ(end(SIGINT), 0);
}

// The stand-in for the package cp_pool takes adapters in JSON.
TEST_F(WatchProgram, AnAdapterThatIsSavedIsLoadedAnew) {
  const test::ScopedVariable packages{"PYTHONPATH", CP_POOL_ADAPTER_PACKAGE};
  write_file(path("mine.py"), "{");
  program.emplace(Words{kProgram, "watch", "--matrix", path("demo.json"), "--filter", "model=pass", "--adapter",
                        path("mine.py"), "--python", "python3"},
                  Program::Redirect{.out = path("out")});
  EXPECT_THAT(wait_for_round(1), HasSubstr("0 passed, 1 not judged in "));
  write_file(path("mine.py"), "{}");
  EXPECT_EQ(wait_for(" changed\n"), "round 2: " + path("mine.py") + " changed\n");
  EXPECT_THAT(wait_for_round(2), HasSubstr("1 passed in "));
  EXPECT_EQ(end(SIGINT), 0);
}

TEST_F(WatchProgram, AWorkerThatOnlyAnOverrideNamesIsWatched) {
  const fs::path other = folder / "other.py";
  write_file(other, script);
  write_file(path("cp-pool.toml"),
             "[[override]]\nfilter = \"model=fail\"\nworker = \"python3 " + other.string() + "\"\n");
  program.emplace(Words{kProgram, "watch", "--config", path("cp-pool.toml"), "--matrix", path("demo.json"), "--filter",
                        "model=fail"},
                  Program::Redirect{.out = path("out")});
  EXPECT_THAT(wait_for_round(1), HasSubstr("1 failed, 0 passed in "));
  write_file(path("worker.new"), mended());
  fs::rename(path("worker.new"), other);
  EXPECT_EQ(wait_for(" changed\n"), "round 2: " + other.string() + " changed\n");
  EXPECT_THAT(wait_for_round(2), HasSubstr("1 passed in "));
  EXPECT_EQ(end(SIGINT), 0);
}

TEST_F(WatchProgram, AMatrixIsReadAgainAndOneThatIsBrokenSkipsTheRound) {
  const std::string matrix = read_file(path("demo.json"));
  start("model=pass*");
  EXPECT_THAT(wait_for_round(1), HasSubstr("2 passed in "));
  write_file(path("demo.json"), matrix.substr(0, 40));
  EXPECT_THAT(wait_for("not run - waiting for changes of "), HasSubstr("round 2: " + path("demo.json") + " changed\n"));
  std::string more = matrix;
  more.replace(more.find(R"("pass":{})"), 9, R"("pass":{},"pass_3":{})");
  write_file(path("demo.json"), more);
  EXPECT_THAT(wait_for("3 passed in "), HasSubstr("round 3: "));
  EXPECT_EQ(end(SIGINT), 0);
  EXPECT_THAT(err, is_one_error(path("demo.json")));
}

TEST_F(WatchProgram, WhatIsWrongAtTheStartEndsIt) {
  start("model=none");
  EXPECT_EQ(program->wait().exit_code, 4);
  write_file(path("demo.json"), "{");
  start("model=pass");
  EXPECT_EQ(program->wait().exit_code, 94);
  const Finished done = call({"watch", "--rerun-failed", path("e")});
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_THAT(done.err, HasSubstr("--rerun-failed"));
}

}  // namespace
}  // namespace cp_pool
