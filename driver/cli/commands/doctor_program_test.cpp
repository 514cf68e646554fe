// `cp-pool doctor` where something is missing: it prints each line at once, bounds each try in time and names what
// failed.
#include <fmt/format.h>

#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class Doctor : public CommandLine {};

// The worker copies the lines that doctor has printed before it started the worker.
TEST_F(Doctor, SaysEachLineAsItFindsIt) {
  const std::string worker = fmt::format("sh -c 'cat {} > {}; exec sleep 60'", path("out"), path("seen"));
  Program program{{kProgram, "doctor", "--worker", worker, "--timeout", "3s"}, {.in = "/dev/null", .out = path("out")}};
  EXPECT_EQ(program.wait().exit_code, 96);
  EXPECT_THAT(read_file(path("seen")), AllOf(HasSubstr("cp-pool    ok"), HasSubstr("CPU        ok"),
                                             HasSubstr("loopback   ok"), Not(HasSubstr("matrix "))));
  EXPECT_THAT(read_file(path("out")),
              AllOf(HasSubstr("ranks      MISSING the pool cannot start: not ready within 3000 ms"),
                    HasSubstr("matrix     ok"), Not(HasSubstr("install with"))));
}

TEST_F(Doctor, NamesTheLimitThatFailed) {
  const std::string said = "socket: Too many open files";
  const std::string worker = fmt::format("sh -c \"echo {} >&2; exit 1\"", said);
  const Finished done = run_to_end({"sh", "-c", "ulimit -n 128; exec \"$0\" doctor --worker \"$1\"", kProgram, worker});
  EXPECT_EQ(done.exit_code, 96);
  EXPECT_THAT(done.out, HasSubstr("limits     ok      open files: 128"));
  EXPECT_THAT(done.out, HasSubstr(said + "\n                   the limit that failed: open files: 128; raise it with: "
                                         "ulimit -n NUMBER\n"));
  EXPECT_THAT(done.out, Not(HasSubstr("install with")));
}

// In a network namespace of its own the loopback interface is down.
TEST_F(Doctor, SaysThatThereIsNoLoopback) {
  const Words alone{"unshare", "--map-root-user", "--net"};
  Words probe = alone;
  probe.emplace_back("true");
  if (run_to_end(probe).exit_code != 0) GTEST_SKIP() << "this machine allows no network namespace";
  Words words = alone;
  words.insert(words.end(), {kProgram, "doctor", "--worker", "/no/such/worker"});
  EXPECT_THAT(run_to_end(words),
              exits(96, out(HasSubstr("loopback   MISSING 127.0.0.1 cannot be reached (Network is unreachable)"),
                            HasSubstr("ip link set lo up"))));
}

TEST_F(Doctor, DoctorStartsTheWorkerAndListsWhatWouldRun) {
  EXPECT_THAT(call({"doctor", "--worker", kWorker}),
              exits(0, out(HasSubstr("CPU "), HasSubstr("2 ready in"), HasSubstr("a case     ok      pass"),
                           HasSubstr("te-flash (small): "))));
}

TEST_F(Doctor, DoctorNamesAWorkerThatDoesNotStartAndExits96) {
  const Finished done = call({"doctor", "--worker", "/no/such/worker"});
  EXPECT_EQ(done.exit_code, 96);
  EXPECT_THAT(done.out, AllOf(HasSubstr("ranks      MISSING the pool cannot start: "), HasSubstr("/no/such/worker")));
  EXPECT_THAT(done.out, Not(HasSubstr("cp-pool-worker")));  // advice to build the shipped worker would not help here
}

}  // namespace
}  // namespace cp_pool::test
