#include "driver/cli/config/case_overrides.h"

#include <gmock/gmock.h>

#include "driver/testing/command_error.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using namespace ::testing;

std::vector<CaseOverride> read(const std::string& text) {
  const auto keys = [](const std::string& key, const std::string& value) -> std::optional<std::string> {
    const std::vector<std::string> options{"filter", "timeout", "retries", "slots", "worker", "adapter", "device"};
    if (std::ranges::count(options, key) == 0) return std::nullopt;
    return value == "soon" ? "'soon' is not a duration" : "";
  };
  std::vector<CaseOverride> out;
  for (const ConfigTable& table : parse_config(text, "cp-pool.toml", {}).overrides) {
    out.push_back(read_override(table, keys));
  }
  return out;
}

MatrixCase case_of(const std::string& model) {
  MatrixCase c;
  c.c.suite = "s";
  c.c.model = model;
  c.id = "s/" + model;
  return c;
}

Item named(const std::vector<CaseOverride>& overrides, const std::string& model) {
  Item out;
  apply_overrides(overrides, case_of(model), out);
  return out;
}

constexpr const char* kThree = R"(
[[override]]
filter = "s/*"
timeout = 9
retries = 2
environment = {NCCL_ALGO = "Ring", OMP_NUM_THREADS = 2}
xfail = "issue 5"
xfail-strict = true
[[override]]
filter = ["model=a", "model=c"]
timeout = "7s"
environment.NCCL_ALGO = "Tree"
slots = 4
[[override]]
filter = "model=b"
skip = "no room"
[[override]]
filter = "model=c"
xfail = false
)";

TEST(CaseOverrides, TheLastThatSaysSomethingOfACaseCounts) {
  const auto overrides = read(kThree);
  const Item a = named(overrides, "a");
  EXPECT_EQ(a.timeout, milliseconds{7000});
  EXPECT_EQ(a.retries, 2);
  EXPECT_EQ(a.expected, (Expected{.outcome = CaseOutcome::fail, .reason = "issue 5", .strict = true}));
  ASSERT_TRUE(a.ranks.has_value());
  EXPECT_EQ(a.ranks->slots, 4);
  EXPECT_THAT(a.ranks->environment, ElementsAre("NCCL_ALGO=Tree", "OMP_NUM_THREADS=2"));
  const Item b = named(overrides, "b");
  EXPECT_EQ(b.timeout, milliseconds{9000});
  EXPECT_EQ(b.expected, (Expected{.outcome = CaseOutcome::skip, .reason = "no room"}));
  EXPECT_THAT(b.ranks->environment, ElementsAre("NCCL_ALGO=Ring", "OMP_NUM_THREADS=2"));
  EXPECT_EQ(named(overrides, "c").expected, std::nullopt);
  const Item other = named(read("[[override]]\nfilter = \"model=x\"\nslots = 1\n"), "a");
  EXPECT_EQ(other.ranks, std::nullopt);
}

TEST(CaseOverrides, SayWhereTheyStand) {
  const auto overrides = read(kThree);
  EXPECT_THAT(overrides_of(overrides, case_of("c")),
              ElementsAre(HasSubstr("cp-pool.toml:2: "), HasSubstr("timeout = 7s"), "cp-pool.toml:17: xfail = false"));
  EXPECT_THAT(overrides_of(read("[[override]]\nfilter = \"model=x\"\nslots = 1\n"), case_of("a")), IsEmpty());
}

TEST(CaseOverrides, ANamedWorkerIsFoundOnceAndReplacesTheOther) {
  auto overrides = read(
      "[[override]]\nfilter = \"*\"\nworker = \"env one\"\n"
      "[[override]]\nfilter = \"model=b\"\nworker = \"env two\"\n");
  find_workers(overrides, {});
  EXPECT_THAT(named(overrides, "a").ranks->worker_command, ElementsAre("env", "one"));
  EXPECT_THAT(named(overrides, "b").ranks->worker_command, ElementsAre("env", "two"));
}

TEST(CaseOverrides, ARerunLeavesToTheFileWhatTheFileSays) {
  std::vector<std::string> words{"--device", "cpu", "--timeout", "2m", "--worker", "w"};
  leave_to_file({.left_to_file = {"--timeout", "--adapter"}, .rerun_words = {"--profile", "ci"}}, words);
  EXPECT_THAT(words, ElementsAre("--device", "cpu", "--worker", "w", "--profile", "ci"));
}

TEST(CaseOverrides, ErrorsNameTheLine) {
  const auto error = [](const std::string& lines) {
    return test::command_error(ExitCode::usage, [&] { read("[[override]]\n" + lines); });
  };
  EXPECT_EQ(error("timeout = 3\n"), "cp-pool.toml:1: override: filter is required");
  const std::string all = "filter = \"*\"\n";
  EXPECT_THAT(error(all + "timout = 3\n"),
              HasSubstr("cp-pool.toml:3: override: unknown key 'timout'; did you mean 'timeout'?; there are filter,"));
  EXPECT_THAT(error(all + "device = \"cpu\"\n"),
              HasSubstr("cp-pool.toml:3: override: 'device' holds for all cases of a run and not for some; there are"));
  EXPECT_EQ(error(all + "timeout = \"soon\"\n"), "cp-pool.toml:3: override: timeout: 'soon' is not a duration");
  EXPECT_THAT(error("filter = \"modle=a\"\n"), HasSubstr("cp-pool.toml:2: override: "));
  EXPECT_EQ(error(all + "xfail-strict = true\n"), "cp-pool.toml:3: override: xfail-strict: it needs xfail");
  EXPECT_EQ(error(all + "xfail = \"x\"\nxfail-strict = 1\n"),
            "cp-pool.toml:4: override: xfail-strict: true or false is wanted");
  EXPECT_THAT(error(all + "xfail = \"x\"\nxfail_strict = true\n"), HasSubstr("did you mean 'xfail-strict'?"));
  EXPECT_EQ(error(all + "xfail = true\n"), "cp-pool.toml:3: override: xfail: a reason is wanted, as a text; or false");
  EXPECT_EQ(error(all + "xfail = \"x\"\nskip = \"y\"\n"), "cp-pool.toml:4: override: skip: it contradicts xfail");
  EXPECT_EQ(error(all + "skip = [\"x\"]\n"), "cp-pool.toml:3: override: skip: a list, where one value is wanted");
  EXPECT_EQ(error(all + "slots = 0\n"), "cp-pool.toml:3: override: slots: at least 1");
  EXPECT_EQ(error(all + "adapter = \"a.py\"\nworker = \"w\"\n"),
            "cp-pool.toml:3: override: adapter: it contradicts worker");
  EXPECT_EQ(error(all + "environment = \"A=b\"\n"),
            "cp-pool.toml:3: override: environment: a table is wanted: {NAME = \"value\"}");
  EXPECT_EQ(error(all + "environment.A = [1]\n"),
            "cp-pool.toml:3: override: environment.A: a text or a number is wanted");
  for (const char* name : {"RANK", "CP_POOL_TAG", "CUDA_VISIBLE_DEVICES"}) {
    EXPECT_EQ(error(all + "environment." + name + " = 1\n"),
              std::string{"cp-pool.toml:3: override: environment."} + name + ": cp-pool itself sets it");
  }
}

}  // namespace
}  // namespace cp_pool
