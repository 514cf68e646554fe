#include "driver/cli/config/config_file.h"

#include <unistd.h>

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/testing/command_error.h"

namespace cp_pool {
namespace {

using namespace ::testing;

std::string error_of(const std::string& text) {
  return test::command_error(ExitCode::usage, [&] { parse_config(text, "cp-pool.toml", {}); });
}

TEST(ConfigFile, KnowsTheLineOfEachValue) {
  const ConfigFile file = parse_config(
      "[profile.default]\ntimeout = \"2m\"\n\n[profile.ci]\nretries = 2\nfilter = [\"a\", \"b\"]\ntimings = true\n",
      "cp-pool.toml", "/somewhere");
  EXPECT_EQ(file.folder, "/somewhere");
  ASSERT_EQ(file.profiles.size(), 2U);
  const auto entry = [&](std::size_t profile, const std::string& key) {
    for (const ConfigEntry& each : file.profiles.at(profile).entries) {
      if (each.key == key) return each;
    }
    return ConfigEntry{};
  };
  EXPECT_EQ(file.profiles[0].name, "ci");  // profiles are in the order of their names
  EXPECT_EQ(entry(1, "timeout").place, "cp-pool.toml:2");
  EXPECT_THAT(entry(1, "timeout").values, ElementsAre("2m"));
  EXPECT_EQ(entry(0, "retries").kind, ConfigEntry::Kind::number);
  EXPECT_THAT(entry(0, "filter").values, ElementsAre("a", "b"));
  EXPECT_EQ(entry(0, "filter").place, "cp-pool.toml:6");
  EXPECT_EQ(entry(0, "timings").kind, ConfigEntry::Kind::boolean);
}

TEST(ConfigFile, JoinsTheKeysOfATableWithin) {
  const ConfigFile file = parse_config(
      "[profile.default]\nrecord.dir = \"runs\"\n[[override]]\nfilter = \"*\"\nskip = {reason = \"no GPU\"}\n", "f",
      {});
  EXPECT_EQ(file.profiles.at(0).entries.at(0).key, "record-dir");
  EXPECT_EQ(file.overrides.at(0).place, "f:3");
  EXPECT_EQ(file.overrides.at(0).entries.at(1).key, "skip.reason");
}

TEST(ConfigFile, RefusesWhatIsNoConfigurationAndSaysWhere) {
  EXPECT_THAT(error_of("[profile.ci\n"), HasSubstr("cp-pool.toml:1:"));
  EXPECT_THAT(error_of("\n[profiles.ci]\n"),
              HasSubstr("cp-pool.toml:2: unknown key 'profiles'; did you mean 'profile'?"));
  EXPECT_THAT(error_of("timeout = 3\n"), HasSubstr("cp-pool.toml:1: unknown key 'timeout'; options stand in"));
  EXPECT_THAT(error_of("profile = 3\n"), HasSubstr("cp-pool.toml:1: profile: it has to be tables"));
  EXPECT_THAT(error_of("[profile]\nci = 3\n"), HasSubstr("cp-pool.toml:2: profile.ci: it has to be a table"));
  EXPECT_THAT(error_of("[override]\n"), HasSubstr("override: it has to be a list of tables"));
  EXPECT_THAT(error_of("[profile.ci]\ntimeout = 2026-01-01\n"), HasSubstr("cp-pool.toml:2: timeout: a date"));
}

TEST(ConfigFile, IsFoundInTheNearestFolderAbove) {
  const test::TemporaryFolder folder;
  const std::filesystem::path deep = folder.path() / "a/b/c";
  std::filesystem::create_directories(deep);
  EXPECT_EQ(find_config_file(deep), std::nullopt);
  test::write_file(folder.path() / "cp-pool.toml", "");
  EXPECT_EQ(find_config_file(deep), folder.path() / "cp-pool.toml");
  test::write_file(folder.path() / "a/b/cp-pool.toml", "");
  EXPECT_EQ(find_config_file(deep), folder.path() / "a/b/cp-pool.toml");
}

TEST(ConfigFile, IsNotOverlookedIfItIsALinkThatLeadsNowhere) {
  const test::TemporaryFolder folder;
  std::filesystem::create_symlink("moved.toml", folder.path() / "cp-pool.toml");
  const auto found = find_config_file(folder.path());
  ASSERT_EQ(found, folder.path() / "cp-pool.toml");
  EXPECT_THAT(test::command_error(ExitCode::usage, [&] { (void)read_config_file(*found); }),
              AllOf(HasSubstr("cp-pool.toml"), HasSubstr("it is a link to moved.toml, which does not exist")));
}

TEST(ConfigFile, OfAnotherUserIsNotTaken) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const test::TemporaryFolder folder;
  const std::filesystem::path own = folder.path() / "own";
  std::filesystem::create_directories(own);
  test::write_file(folder.path() / "cp-pool.toml", "");
  ASSERT_EQ(::chown(folder.path().c_str(), 65534, 65534), 0);
  EXPECT_EQ(find_config_file(own), std::nullopt);
}

}  // namespace
}  // namespace cp_pool
