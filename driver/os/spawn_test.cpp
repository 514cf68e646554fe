#include "driver/os/spawn.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

namespace cp_pool {
namespace {

using testing::HasSubstr;

// A shell command's output and end.
struct Finished {
  std::string out;
  ExitStatus status;
};

Finished run_shell(const std::string& script, SpawnRequest request = {}) {
  Pipe out = make_pipe();
  request.argv = {"sh", "-c", script};
  request.stdout_fd = out.write.get();
  const SpawnedProcess process = spawn(request);
  out.write.reset();
  Finished result;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(out.read.get(), buffer.data(), buffer.size())) > 0;) {
    result.out.append(buffer.data(), static_cast<std::size_t>(n));
  }
  pollfd exited{process.pidfd.get(), POLLIN, 0};
  ::poll(&exited, 1, -1);
  result.status = peek_exit(process.pid).value();
  EXPECT_EQ(peek_exit(process.pid), result.status) << "peeking leaves the zombie";
  EXPECT_TRUE(reap_if_exited(process.pid));
  return result;
}

TEST(Spawn, RunsTheCommandInAProcessGroupOfItsOwn) {
  const Finished finished = run_shell("read -r _ _ _ _ group _ < /proc/$$/stat; echo $group $$; exit 3");
  const std::size_t space = finished.out.find(' ');
  EXPECT_EQ(finished.out.substr(0, space) + "\n", finished.out.substr(space + 1));
  EXPECT_EQ(finished.status, (ExitStatus{false, 3}));
}

TEST(Spawn, AddsToTheEnvironmentAndReplacesInIt) {
  ::setenv("CP_POOL_SPAWN_TEST", "old", 1);
  SpawnRequest request;
  request.env = {{"CP_POOL_SPAWN_TEST", "new"}, {"CP_POOL_SPAWN_OTHER", "x y"}};
  // Read from the kernel, because a shell would pass on only one of two variables with the same name.
  const Finished finished = run_shell("tr '\\0' '\\n' < /proc/$$/environ | grep CP_POOL_SPAWN | sort", request);
  EXPECT_EQ(finished.out, "CP_POOL_SPAWN_OTHER=x y\nCP_POOL_SPAWN_TEST=new\n");
  ::unsetenv("CP_POOL_SPAWN_TEST");
}

TEST(Spawn, PassesOnNoDescriptorButTheOneNamed) {
  const UniqueFd null{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  const UniqueFd leaky{::fcntl(null.get(), F_DUPFD, 50)};  // without close-on-exec
  const UniqueFd named{::fcntl(null.get(), F_DUPFD_CLOEXEC, 60)};
  SpawnRequest request;
  request.inherited_fd = named.get();
  const Finished finished = run_shell("for fd in 0 1 2 50 60; do test -e /proc/$$/fd/$fd && echo $fd; done", request);
  EXPECT_EQ(finished.out, "0\n1\n2\n60\n");
}

TEST(Spawn, GivesDevNullWhereNothingIsGiven) {
  const Finished finished = run_shell("readlink /proc/$$/fd/0 /proc/$$/fd/2");
  EXPECT_EQ(finished.out, "/dev/null\n/dev/null\n");
}

TEST(Spawn, StartsWithSignalsAtTheirDefaultsAndUnblocked) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const Finished finished = run_shell("grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status");
  EXPECT_THAT(finished.out, HasSubstr("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
  ::signal(SIGPIPE, SIG_DFL);
  ::sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
}

TEST(Spawn, TellsAMissingBinaryFromACommandThatExits127) {
  try {
    spawn({.argv = {"/nowhere/worker"}});
    FAIL() << "nothing was thrown";
  } catch (const SpawnError& error) {
    EXPECT_EQ(error.error, ENOENT);
    EXPECT_TRUE(error.permanent());
    EXPECT_STREQ(error.what(), "cannot run \"/nowhere/worker\": No such file or directory");
  }
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "no child is left";
  EXPECT_EQ(run_shell("exit 127").status, (ExitStatus{false, 127}));
}

TEST(Spawn, RefusesAnEmptyCommand) {
  EXPECT_THROW(spawn({}), SpawnError);
}

TEST(ExitStatus, IsDescribedBySignalName) {
  EXPECT_EQ(describe(ExitStatus{false, 3}), "exit 3");
  EXPECT_EQ(describe(ExitStatus{true, SIGSEGV}), "signal 11 (SIGSEGV)");
  EXPECT_EQ(describe(run_shell("kill -KILL $$").status), "signal 9 (SIGKILL)");
}

}  // namespace
}  // namespace cp_pool
