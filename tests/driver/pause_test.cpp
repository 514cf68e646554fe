// A driver process that is stopped and continued, as Ctrl-Z and fg do. The tests look at it and its ranks from outside.
#include <algorithm>
#include <csignal>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <gmock/gmock.h>

#include "driver/core/clock.h"
#include "driver/os/process_settings.h"
#include "driver/os/process_tree.h"
#include "driver/os/spawn.h"
#include "tests/driver/harness.h"

namespace cp_pool::driver_test {
namespace {

using namespace ::testing;

char state_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(in), {}};
  const std::size_t end_of_name = stat.rfind(") ");
  return end_of_name == std::string::npos ? 'X' : stat[end_of_name + 2];
}

// A process of driver_process.cpp, and the lines that it prints.
class StoppedDriver {
 public:
  explicit StoppedDriver(const std::vector<std::string>& arguments) {
    Pipe out = make_pipe();
    SpawnRequest request;
    request.argv = {CP_POOL_DRIVER_PROCESS};
    request.argv.insert(request.argv.end(), arguments.begin(), arguments.end());
    request.stdout_fd = out.write.get();
    process_ = spawn(request);
    out_ = std::move(out.read);
  }
  StoppedDriver(const StoppedDriver&) = delete;
  StoppedDriver& operator=(const StoppedDriver&) = delete;
  ~StoppedDriver() {
    if (!ended_) {
      ::kill(process_.pid, SIGKILL);
      ::waitpid(process_.pid, nullptr, 0);
    }
  }

  // Reads lines up to this one; returns false if the output ends before.
  bool read_to(const std::string& wanted) {
    for (;;) {
      std::string line;
      for (char c = 0; ::read(out_.get(), &c, 1) == 1 && c != '\n';) line += c;
      if (line.empty()) return false;
      if (line.starts_with("pid ")) {
        ranks_.push_back(std::stoi(line.substr(4)));
      } else {
        lines_.push_back(line);
      }
      if (line == wanted) return true;
    }
  }

  // Sends the signal and returns when the driver has stopped.
  void stop(int signal) {
    ::kill(process_.pid, signal);
    int status = 0;
    ASSERT_EQ(::waitpid(process_.pid, &status, WUNTRACED), process_.pid);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    EXPECT_EQ(WSTOPSIG(status), signal);
  }
  void interrupt() const { ::kill(process_.pid, SIGINT); }
  void go_on() const { ::kill(process_.pid, SIGCONT); }

  int wait() {
    read_to("");
    int status = 0;
    ::waitpid(process_.pid, &status, 0);
    ended_ = true;
    return status;
  }

  [[nodiscard]] const std::vector<pid_t>& ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  ProcessSettings settings_;  // this process is a child subreaper
  SpawnedProcess process_;
  UniqueFd out_;
  std::vector<pid_t> ranks_;
  std::vector<std::string> lines_;
  bool ended_ = false;
};

// Whether none of these processes exists; a process that nobody has reaped yet does not count.
bool are_gone(const std::vector<pid_t>& ranks) {
  return std::ranges::all_of(ranks, [](pid_t rank) { return state_of(rank) == 'X' || state_of(rank) == 'Z'; });
}

std::vector<std::string> from_start_file(const std::string& model, const TemporaryPath& file) {
  return {model, "--starts=" + file.get().string()};
}

TEST(PausedDriver, EndsItsRanksAndSendsARunningCaseAgainUncharged) {
  const TemporaryPath starts("starts");
  StoppedDriver driver(from_start_file("hang_once", starts));
  ASSERT_TRUE(driver.read_to("started"));
  ASSERT_EQ(driver.ranks().size(), 4U);
  driver.stop(SIGTSTP);
  EXPECT_TRUE(are_gone(driver.ranks()));
  driver.go_on();
  EXPECT_EQ(driver.wait(), 0);
  EXPECT_THAT(driver.lines(), ElementsAre("spawned", "started", "retired paused", "paused", "spawned", "started",
                                          "finished pass, 2 attempts", "retired finished"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(PausedDriver, IsStoppedAgainAtOnce) {
  const TemporaryPath starts("starts");
  StoppedDriver driver(from_start_file("hang_once", starts));
  ASSERT_TRUE(driver.read_to("started"));
  driver.stop(SIGTSTP);
  driver.go_on();
  ASSERT_TRUE(driver.read_to("paused"));
  driver.stop(SIGTSTP);
  driver.go_on();
  EXPECT_EQ(driver.wait(), 0);
  EXPECT_EQ(std::count(driver.lines().begin(), driver.lines().end(), "paused"), 2);
  EXPECT_THAT(driver.lines(), Contains(testing::MatchesRegex("finished pass, [23] attempts")));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(PausedDriver, StartsAPoolAnewThatWasStarting) {
  const TemporaryPath starts("starts");
  StoppedDriver driver({"pass", "--start=never_ready", "--starts=" + starts.get().string(), "--bad-starts=1"});
  ASSERT_TRUE(driver.read_to("spawned"));
  driver.stop(SIGTSTP);
  driver.go_on();
  EXPECT_EQ(driver.wait(), 0);
  EXPECT_THAT(driver.lines(), ElementsAre("spawned", "retired paused", "paused", "spawned", "started",
                                          "finished pass, 1 attempts", "retired finished"));
}

TEST(PausedDriver, ACaseThatFinishedWhileTheDriverAloneWasStoppedStands) {
  const TemporaryPath steps("steps");
  StoppedDriver driver({"until_sigusr1", "--steps=" + steps.get().string()});
  ASSERT_TRUE(driver.read_to("started"));
  // The rank makes a step when the case begins, which may be after the driver says so, and one when it has answered.
  const auto wait_for_step = [&](std::uintmax_t step) {
    const auto too_long = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::error_code none_yet;
    for (std::uintmax_t made = 0; made == static_cast<std::uintmax_t>(-1) || made < step;
         made = std::filesystem::file_size(steps.get(), none_yet)) {
      ASSERT_LT(std::chrono::steady_clock::now(), too_long) << "the rank has not made step " << step;
      std::this_thread::yield();
    }
  };
  wait_for_step(1);
  driver.stop(SIGSTOP);
  for (const pid_t rank : driver.ranks()) EXPECT_NE(state_of(rank), 'T') << "nobody could stop the ranks";
  ::kill(driver.ranks().front(), SIGUSR1);
  wait_for_step(2);
  const auto long_enough = std::chrono::steady_clock::now() + 2 * Clock::kNoticed;
  while (std::chrono::steady_clock::now() < long_enough) std::this_thread::yield();
  driver.go_on();
  EXPECT_EQ(driver.wait(), 0);
  EXPECT_THAT(driver.lines(), Contains("finished pass, 1 attempts"));
  EXPECT_THAT(driver.lines(), Contains("paused"));
}

TEST(PausedDriver, AnInterruptThatCameMeanwhileEndsTheRun) {
  StoppedDriver driver({"hang"});
  ASSERT_TRUE(driver.read_to("started"));
  driver.stop(SIGTSTP);
  driver.interrupt();
  driver.go_on();
  EXPECT_EQ(WEXITSTATUS(driver.wait()), 130);
  EXPECT_THAT(driver.lines(), Contains("finished not-run, 1 attempts"));
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(PausedDriver, BeginsAReplayAnew) {
  StoppedDriver driver({"hang", "--triage"});
  ASSERT_TRUE(driver.read_to("retired timeout"));
  ASSERT_TRUE(driver.read_to("spawned"));
  driver.stop(SIGTSTP);
  EXPECT_TRUE(are_gone(driver.ranks()));
  driver.go_on();
  EXPECT_TRUE(driver.read_to("retired paused"));
  EXPECT_TRUE(driver.read_to("spawned"));
  driver.interrupt();
  driver.wait();
  EXPECT_THAT(processes_left(), IsEmpty());
}

TEST(PausedDriver, KeepsTheOutcomeOfACaseWhoseCauseIsLookedFor) {
  StoppedDriver driver({"diag_none", "--options=diagnosis_ms"});
  ASSERT_TRUE(driver.read_to("in diagnosis"));
  driver.stop(SIGTSTP);
  EXPECT_TRUE(are_gone(driver.ranks()));
  driver.go_on();
  driver.wait();
  EXPECT_THAT(driver.lines(), Contains("retired paused"));
  EXPECT_THAT(driver.lines(), Contains("finished fail, 1 attempts"));
}

}  // namespace
}  // namespace cp_pool::driver_test
