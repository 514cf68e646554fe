#include "worker/fault.h"

#include <csignal>
#include <fstream>
#include <new>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

std::string error_of(const char* text) {
  try {
    parse_fault(text);
  } catch (const FaultSyntaxError& e) {
    return e.what();
  }
  return "no error";
}

TEST(ParseFault, ReadsEveryPart) {
  const Fault fault = parse_fault("exit=3@12:inside:te-flash/*:x");
  EXPECT_EQ(fault.kind, Fault::Kind::exit);
  EXPECT_EQ(fault.argument, 3);
  EXPECT_EQ(fault.rank, 12);
  EXPECT_EQ(fault.phase, Fault::Phase::inside);
  EXPECT_EQ(fault.case_glob, "te-flash/*:x");
}

TEST(ParseFault, HitsEveryCaseWithoutAGlob) {
  EXPECT_EQ(parse_fault("throw@0:before").case_glob, "*");
}

TEST(ParseFault, ErrorsSayWhatIsKnown) {
  EXPECT_THAT(error_of("throw"), testing::HasSubstr("expected KIND@RANK:PHASE[:CASE]"));
  EXPECT_THAT(error_of("jump@0:before"), testing::HasSubstr("unknown kind \"jump\"; known: throw, bad_alloc"));
  EXPECT_THAT(error_of("throw@0:during"), testing::HasSubstr("unknown phase \"during\"; known: start, before, inside"));
  EXPECT_THAT(error_of("throw@one:before"), testing::HasSubstr("\"one\" is not a number"));
  EXPECT_THAT(error_of("exit=-1@0:before"), testing::HasSubstr("\"-1\" is not a number"));
  EXPECT_THAT(error_of("throw=3@1:before"), testing::HasSubstr("only exit, print and print_err take a number"));
}

TEST(FaultInjector, FiresOnItsRankPhaseAndCaseOnceACase) {
  FaultInjector injector({parse_fault("throw@1:after:bad*"), parse_fault("bad_alloc@0:after")}, 1);
  injector.start_case("good");
  EXPECT_NO_THROW(injector.reach(Fault::Phase::after));
  for (int round = 0; round < 2; ++round) {
    injector.start_case("bad/1");
    EXPECT_NO_THROW(injector.reach(Fault::Phase::before));
    EXPECT_THROW(injector.reach(Fault::Phase::after), std::runtime_error);
    EXPECT_NO_THROW(injector.reach(Fault::Phase::after));
  }
}

TEST(FaultInjector, FiresWhatItIsAskedFor) {
  FaultInjector injector({parse_fault("bad_alloc@0:before"), parse_fault("exit=7@0:inside"),
                          parse_fault("sigsegv@0:after"), parse_fault("sigkill@0:idle")},
                         0);
  injector.start_case("x");
  EXPECT_THROW(injector.reach(Fault::Phase::before), std::bad_alloc);
  EXPECT_EXIT(injector.reach(Fault::Phase::inside), testing::ExitedWithCode(7), "");
  EXPECT_DEATH(injector.reach(Fault::Phase::after), "");
  EXPECT_EXIT(injector.reach(Fault::Phase::idle), testing::KilledBySignal(SIGKILL), "");
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
  injector.start_case("x");
  injector.reach(Fault::Phase::inside);
  EXPECT_EQ(joined, 1);
}

TEST(FaultInjector, PrintGoesOnAfterwards) {
  FaultInjector injector({parse_fault("print=1000@0:before")}, 0);
  injector.start_case("x");
  testing::internal::CaptureStdout();
  injector.reach(Fault::Phase::before);
  EXPECT_EQ(testing::internal::GetCapturedStdout().size(), 1000U);
}

// Runs the fault in a process that ends afterwards; gives the process that it has left behind, or -1.
pid_t stray_of(const char* fault) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that it becomes a child of this process
  const pid_t rank = ::fork();
  if (rank == 0) {
    FaultInjector injector({parse_fault(fault)}, 0);
    injector.start_case("x");
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
    while (::getsid(stray) != stray) std::this_thread::yield();  // it may be on its way
    ::kill(stray, SIGTERM);
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(stray), &info, WEXITED | WNOHANG), 0);
    EXPECT_EQ(info.si_pid, 0) << fault << " ends at SIGTERM";
    ::kill(stray, SIGKILL);
    ::waitpid(stray, nullptr, 0);
  }
}

TEST(FaultInjector, PrintErrGoesToStderr) {
  FaultInjector injector({parse_fault("print_err=1000@0:before")}, 0);
  injector.start_case("x");
  testing::internal::CaptureStderr();
  injector.reach(Fault::Phase::before);
  EXPECT_EQ(testing::internal::GetCapturedStderr().size(), 1000U);
}

}  // namespace
}  // namespace cp_pool
