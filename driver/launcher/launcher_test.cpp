#include "driver/launcher/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cp_pool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Words = std::vector<std::string>;

Launcher custom(Words words) {
  return {LauncherKind::custom, std::move(words)};
}

TEST(Launcher, ACustomOneFillsItsPlaceholders) {
  const Launch launch{
      .world_size = 4, .hosts = {{"a", 3}, {"b", 1}}, .rendezvous = "a:20001", .worker = {"/bin/w", "--x", "it's"}};
  EXPECT_THAT(launch_words(custom({"go", "-n{world_size}", "{nodes}x{ranks_per_node}", "--at={rendezvous}", "{hosts}",
                                   "{{{nodes}}}", "--", "{worker}"}),
                           launch),
              ElementsAre("go", "-n4", "2x3", "--at=a:20001", "a,b", "{2}", "--", "/bin/w", "--x", "it's"));
  EXPECT_THAT(launch_words(custom({"sh", "-c", "exec {worker}"}), launch),
              ElementsAre("sh", "-c", R"(exec '/bin/w' '--x' 'it'\''s')"));
}

TEST(Launcher, OnThisHostAloneAllRanksAreOnOneNode) {
  const Launch launch{.world_size = 4, .worker = {"w"}};
  EXPECT_THAT(launch_words(custom({"go", "{nodes}", "{ranks_per_node}", "{worker}"}), launch),
              ElementsAre("go", "1", "4", "w"));
}

TEST(Launcher, ATemplateThatCannotWorkIsRefusedWithTheReason) {
  EXPECT_EQ(wrong_with_template({"go", "{worker}"}), "");
  EXPECT_EQ(wrong_with_template({"sh", "-c", "cd /x && exec {worker}"}), "");
  EXPECT_THAT(wrong_with_template({"go", "{ranks}", "{worker}"}), HasSubstr("there is no {ranks}"));
  EXPECT_THAT(wrong_with_template({"go", "{world_size}"}), HasSubstr("no {worker}"));
  EXPECT_THAT(wrong_with_template({"go", "a}", "{worker}"}), HasSubstr("without a '{'"));
  EXPECT_THAT(wrong_with_template({"go", "{a", "{worker}"}), HasSubstr("without a '}'"));
  EXPECT_THAT(wrong_with_template({"{worker}"}), HasSubstr("no program"));
}

TEST(Launcher, MpirunIsToldHostsAndVariables) {
  EXPECT_THAT(launch_words({LauncherKind::mpirun}, {.world_size = 2, .worker = {"w"}, .variables = {"CP_POOL_TAG"}}),
              ElementsAre("mpirun", "--bind-to", "none", "--oversubscribe", "-np", "2", "-x", "CP_POOL_TAG", "w"));
  EXPECT_THAT(launch_words({LauncherKind::mpirun},
                           {.world_size = 3, .hosts = {{"a", 2}, {"b", 1}}, .worker = {"w"}, .as_root = true}),
              ElementsAre("mpirun", "--bind-to", "none", "--oversubscribe", "-np", "3", "--allow-run-as-root", "--host",
                          "a:2,b:1", "--map-by", "slot", "w"));
}

TEST(Launcher, SrunGivesStdinToRank0AndTakesStdoutOfItAlone) {
  const Words words =
      launch_words({LauncherKind::srun}, {.world_size = 4, .hosts = {{"a", 2}, {"b", 2}}, .worker = {"w"}});
  EXPECT_THAT(words, testing::IsSupersetOf({"--ntasks=4", "--input=0", "--output=0", "--error=all", "--overlap",
                                            "--nodes=2", "--ntasks-per-node=2", "--nodelist=a,b"}));
  EXPECT_EQ(words.back(), "w");
}

TEST(Launcher, IsCalledByItsProgram) {
  EXPECT_EQ(name_of({LauncherKind::srun}), "srun");
  EXPECT_EQ(name_of(custom({"/opt/bin/go", "{worker}"})), "go");
}

}  // namespace
}  // namespace cp_pool
