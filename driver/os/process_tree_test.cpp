#include "driver/os/process_tree.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>

#include "driver/os/process_settings.h"
#include "driver/os/spawn.h"

namespace cp_pool {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class ProcessTree : public testing::Test {
 protected:
  void TearDown() override {
    for (const ProcessInfo& process : list_descendants(::getpid())) ::kill(process.pid, SIGKILL);
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
  }

  // Starts the script and returns when it has written its first byte.
  static pid_t start(const std::string& script, const std::string& tag) {
    Pipe out = make_pipe();
    const SpawnedProcess process =
        spawn({.argv = {"sh", "-c", script}, .env = {{"CP_POOL_TAG", tag}}, .stdout_fd = out.write.get()});
    char c = 0;
    EXPECT_EQ(::read(out.read.get(), &c, 1), 1);
    return process.pid;
  }

  // Kills until none is left, as a pool does.
  static void kill_until_none(PoolProcesses& processes) {
    for (int clean = 0; clean < 2;) clean = processes.kill_all() == 0 ? clean + 1 : 0;
  }

 private:
  ProcessSettings settings_;  // the process is a child subreaper
};

TEST_F(ProcessTree, FindsOnlyTheProcessesOfItsTag) {
  const pid_t mine = start("echo; exec sleep 1000", "tag-a");
  start("echo; exec sleep 1000", "tag-ab");
  start("exec env A_CP_POOL_TAG=tag-a sh -c 'echo; exec sleep 1000'", "tag-b");
  PoolProcesses processes("tag-a");
  const auto found = processes.find();
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].pid, mine);
}

TEST_F(ProcessTree, KillsAGrandchildInASessionOfItsOwnAfterItsParentIsGone) {
  const pid_t shell = start("setsid sh -c 'trap \"\" TERM; echo; sleep 1000; true' & wait", "tag-a");
  ::kill(shell, SIGKILL);
  ::waitpid(shell, nullptr, 0);
  PoolProcesses processes("tag-a");
  EXPECT_GE(processes.find().size(), 1U);
  kill_until_none(processes);
  EXPECT_THAT(processes.find(), IsEmpty());
  EXPECT_THAT(processes.describe(), IsEmpty());
}

TEST_F(ProcessTree, KnowsAGrandchildWithoutTheTagThroughItsParent) {
  const pid_t shell = start("env -i setsid sh -c 'echo; sleep 1000; true' & wait", "tag-a");
  PoolProcesses processes("tag-a");
  EXPECT_GE(processes.find().size(), 2U);
  ::kill(shell, SIGKILL);
  ::waitpid(shell, nullptr, 0);
  EXPECT_GE(processes.find().size(), 1U) << "remembered after the parent is gone";
  kill_until_none(processes);
  EXPECT_THAT(processes.find(), IsEmpty());
}

TEST_F(ProcessTree, NamesWhatIsLeftWithItsState) {
  const pid_t stopped = start("echo; kill -STOP $$", "tag-a");
  ::waitpid(stopped, nullptr, WUNTRACED);
  PoolProcesses processes("tag-a");
  const auto left = processes.describe();
  ASSERT_THAT(left, SizeIs(1));
  EXPECT_EQ(left[0].pid, stopped);
  EXPECT_EQ(left[0].state, "T");
  EXPECT_NE(left[0].wchan, "");
}

TEST_F(ProcessTree, ReapsZombiesButNotThoseOfRanks) {
  const pid_t rank = start("echo", "tag-a");
  const pid_t other = start("echo", "tag-b");
  for (const pid_t pid : {rank, other}) {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT);
  }
  reap_adopted([&](pid_t pid) { return pid == rank; });
  EXPECT_TRUE(peek_exit(rank).has_value());
  EXPECT_FALSE(peek_exit(other).has_value()) << "gone";
  PoolProcesses processes("tag-a");
  EXPECT_THAT(processes.find(), IsEmpty()) << "a zombie is dead";
}

TEST(ProcessInfo, OfAZombieMainThreadWithOtherThreadsIsAlive) {
  EXPECT_TRUE((ProcessInfo{1, 1, 'Z', 1, 0}).dead());
  EXPECT_FALSE((ProcessInfo{1, 1, 'Z', 3, 0}).dead());
  EXPECT_FALSE((ProcessInfo{1, 1, 'D', 1, 0}).dead());
}

}  // namespace
}  // namespace cp_pool
