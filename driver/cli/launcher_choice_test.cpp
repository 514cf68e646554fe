#include "driver/cli/launcher_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(LauncherChoice, IsAName) {
  for (const char* const name : {"local", "torchrun", "mpirun", "srun"}) {
    EXPECT_EQ(wrong_with_launcher(name), "");
    EXPECT_EQ(name_of(parse_launcher(name)), name);
  }
}

TEST(LauncherChoice, IsACommandLineOfTheUsersOwn) {
  const std::string text = "ssh 'my host' run {world_size} {worker}";
  EXPECT_EQ(wrong_with_launcher(text), "");
  const Launcher launcher = parse_launcher(text);
  EXPECT_EQ(launcher.kind, LauncherKind::custom);
  EXPECT_THAT(launcher.words, ElementsAre("ssh", "my host", "run", "{world_size}", "{worker}"));
}

TEST(LauncherChoice, SaysWhatIsWrong) {
  EXPECT_THAT(wrong_with_launcher("slurm"), HasSubstr("is not local, torchrun, mpirun or srun, and no command line"));
  EXPECT_THAT(wrong_with_launcher("mpirun -n {size} {worker}"), HasSubstr("there is no {size}"));
  EXPECT_THAT(wrong_with_launcher("mpirun -n 2"), HasSubstr("no {worker}"));
  EXPECT_THAT(wrong_with_launcher("mpirun 'x"), HasSubstr("is not a command line"));
}

}  // namespace
}  // namespace cp_pool
