#include "worker/fault_injector.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <new>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace cp_pool {
namespace {

TEST(FaultInjector, FiresOnItsRankPhaseAndCaseOnceACase) {
  FaultInjector injector({parse_fault("throw@1:after:bad*"), parse_fault("bad_alloc@0:after")}, 1);
  injector.start_case("good", 1);
  EXPECT_NO_THROW(injector.reach(Fault::Phase::after));
  for (int round = 0; round < 2; ++round) {
    injector.start_case("bad/1", round);
    EXPECT_NO_THROW(injector.reach(Fault::Phase::before));
    EXPECT_THROW(injector.reach(Fault::Phase::after), std::runtime_error);
    EXPECT_NO_THROW(injector.reach(Fault::Phase::after));
  }
}

TEST(FaultInjector, FiresWhatItIsAskedFor) {
  FaultInjector injector({parse_fault("bad_alloc@0:before"), parse_fault("exit=7@0:inside"),
                          parse_fault("sigsegv@0:after"), parse_fault("sigkill@0:idle")},
                         0);
  injector.start_case("x", 1);
  EXPECT_THROW(injector.reach(Fault::Phase::before), std::bad_alloc);
  EXPECT_EXIT(injector.reach(Fault::Phase::inside), testing::ExitedWithCode(7), "");
  EXPECT_DEATH(injector.reach(Fault::Phase::after), "");
  EXPECT_EXIT(injector.reach(Fault::Phase::idle), testing::KilledBySignal(SIGKILL), "");
}

TEST(FaultInjector, GoesFromAFaultThatPassesToTheNextAtThePhase) {
  FaultInjector injector({parse_fault("slow=0@0:before"), parse_fault("throw@0:before")}, 0);
  injector.start_case("x", 1);
  EXPECT_THROW(injector.reach(Fault::Phase::before), std::runtime_error);
  EXPECT_FALSE(injector.is_armed(Fault::Phase::before));
}

TEST(FaultInjector, SlowGoesOnAfterItsTimeAndSaysSo) {
  FaultInjector injector({parse_fault("slow=20@0:before")}, 0);
  injector.start_case("x", 1);
  testing::internal::CaptureStderr();
  const auto start = std::chrono::steady_clock::now();
  injector.reach(Fault::Phase::before);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "cp-pool-worker: rank 0: injected fault slow=20@0:before\n");
}

TEST(FaultInjector, WrongIsInAResultAndAtNoPhase) {
  FaultInjector injector({parse_fault("wrong=dq@0:inside:bad*"), parse_fault("wrong@0:inside:bad*")}, 0);
  injector.start_case("bad", 1);
  EXPECT_FALSE(injector.is_armed(Fault::Phase::inside));
  EXPECT_THAT(injector.wrong_tensors(), testing::ElementsAre("dq", "out"));
  injector.start_case("good", 2);
  EXPECT_THAT(injector.wrong_tensors(), testing::IsEmpty());
}

// Returns the attempts, of 200, in which a flaky fault fires.
std::vector<int> fired(const char* fault, int rank = 0, const char* id = "x") {
  FaultInjector injector({parse_fault(fault)}, rank);
  std::vector<int> attempts;
  for (int seq = 1; seq <= 200; ++seq) {
    injector.start_case(id, seq);
    if (!injector.is_armed(Fault::Phase::after)) continue;
    attempts.push_back(seq);
    EXPECT_THROW(injector.reach(Fault::Phase::after), std::runtime_error);
  }
  return attempts;
}

TEST(FaultInjector, FlakyIsDrawnAnewForEachAttemptAndTheSameFromTheSameSeed) {
  const std::vector<int> seen = fired("flaky=0.3@0:after");
  EXPECT_GT(seen.size(), 30U);
  EXPECT_LT(seen.size(), 90U);
  EXPECT_EQ(fired("flaky=0.3,0@0:after"), seen) << "the seed is 0 if left out";
  EXPECT_NE(fired("flaky=0.3,1@0:after"), seen);
  EXPECT_NE(fired("flaky=0.3@1:after", 1), seen);
  EXPECT_NE(fired("flaky=0.3@0:after", 0, "y"), seen);
  EXPECT_TRUE(std::ranges::includes(fired("flaky=0.4@0:after"), seen)) << "a larger probability adds to what fails";
  EXPECT_THAT(seen, testing::ElementsAreArray(fired("flaky=0.3@0:after")));
  EXPECT_THAT(fired("flaky=0@0:after"), testing::IsEmpty());
  EXPECT_THAT(fired("flaky=1@0:after"), testing::SizeIs(200));
}

TEST(FaultInjector, FlakyDrawsTheSameOnEveryMachine) {
  const std::vector<int> seen = fired("flaky=0.3,7@0:after");
  ASSERT_GE(seen.size(), 5U);
  EXPECT_THAT(std::vector(seen.begin(), seen.begin() + 5), testing::ElementsAre(3, 5, 10, 14, 18));
}

TEST(FaultInjector, FiresAtTheStartBeforeAnyCase) {
  FaultInjector injector({parse_fault("throw@0:start"), parse_fault("throw@0:before")}, 0);
  EXPECT_FALSE(injector.is_armed(Fault::Phase::before));
  EXPECT_TRUE(injector.is_armed(Fault::Phase::start));
  EXPECT_THROW(injector.reach(Fault::Phase::start), std::runtime_error);
}

TEST(FaultInjector, WaitJoinsTheCollectiveThatNobodyElseJoins) {
  FaultInjector injector({parse_fault("wait@0:inside")}, 0);
  int joined = 0;
  injector.set_lonely_collective([&] { ++joined; });
  injector.start_case("x", 1);
  injector.reach(Fault::Phase::inside);
  EXPECT_EQ(joined, 1);
}

TEST(FaultInjector, PrintGoesOnAfterwards) {
  FaultInjector injector({parse_fault("print=1000@0:before")}, 0);
  injector.start_case("x", 1);
  testing::internal::CaptureStdout();
  injector.reach(Fault::Phase::before);
  EXPECT_EQ(testing::internal::GetCapturedStdout().size(), 1000U);
}

// Runs the fault in a process that then ends; returns the process that it leaves behind, or -1.
pid_t stray_of(const char* fault) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // makes the stray process a child of this process
  const pid_t rank = ::fork();
  if (rank == 0) {
    FaultInjector injector({parse_fault(fault)}, 0);
    injector.start_case("x", 1);
    injector.reach(Fault::Phase::before);
    _exit(0);
  }
  ::waitpid(rank, nullptr, 0);
  pid_t stray = -1;
  std::ifstream(fmt::format("/proc/self/task/{}/children", ::getpid())) >> stray;
  return stray;
}

TEST(FaultInjector, SetsidAndDaemonLeaveAProcessThatSignalsToTheGroupDoNotReach) {
  for (const char* fault : {"setsid@0:before", "daemon@0:before"}) {
    const pid_t stray = stray_of(fault);
    ASSERT_GT(stray, 0) << fault;
    siginfo_t info{};
    while (::getsid(stray) != stray) std::this_thread::yield();  // waits until the process has called setsid
    ::kill(stray, SIGTERM);
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(stray), &info, WEXITED | WNOHANG), 0);
    EXPECT_EQ(info.si_pid, 0) << fault << " ends at SIGTERM";
    ::kill(stray, SIGKILL);
    ::waitpid(stray, nullptr, 0);
  }
}

TEST(FaultInjector, PrintErrGoesToStderr) {
  FaultInjector injector({parse_fault("print_err=1000@0:before")}, 0);
  injector.start_case("x", 1);
  testing::internal::CaptureStderr();
  injector.reach(Fault::Phase::before);
  EXPECT_EQ(testing::internal::GetCapturedStderr().size(), 1000U);
}

}  // namespace
}  // namespace cp_pool
