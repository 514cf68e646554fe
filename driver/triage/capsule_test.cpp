#include "driver/triage/capsule.h"

#include <gmock/gmock.h>

#include "cases/case_error.h"
#include "cases/testing/temporary_folder.h"
#include "driver/testing/example_events.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

Capsule example() {
  Capsule out;
  out.version = "0.1.0";
  out.id = "te/x";
  out.outcome = CaseOutcome::crash;
  out.reason = "rank 1 died";
  out.rerun = "cp-pool submit te/x";
  out.verdict = test::state_leak(0, "te/x", "te/y").verdict;
  out.worker_command = {"worker", "--flag"};
  out.fork_server = {"python", "-m", "x"};
  out.folder = "/somewhere";
  out.environment = {"NCCL_DEBUG=INFO"};
  out.device = "cuda";
  out.share_gpus = false;
  out.timeout = std::chrono::milliseconds(1500);
  out.start_timeout = std::chrono::milliseconds(2500);
  out.bound_factor = 2;
  out.reference_cache = false;
  out.perf.emplace().warmup = 3;
  out.worker_name = "worker 1";
  out.versions = {{"torch", "2.11.0"}};
  out.left_out = 7;
  out.cases = {{.id = "te/y", .payload = test::example_case(), .timeout = std::chrono::milliseconds(12)},
               {.id = "te/x", .payload = test::example_case("te", "x")}};
  return out;
}

std::string text_of(const Capsule& capsule) {
  return protocol::object_json<nlohmann::ordered_json>(capsule).dump();
}

TEST(Capsule, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  CaseFinished result = test::failed_case(0, "te/x");
  write_capsule(folder / "c", example(), "{}\n{}\n", result);
  EXPECT_EQ(text_of(read_capsule(folder / "c")), text_of(example()));
  EXPECT_EQ(text_of(read_capsule(folder / "c/capsule.json")), text_of(example()));
  EXPECT_EQ(test::read_file(folder / "c/requests.jsonl"), "{}\n{}\n");
  EXPECT_EQ(test::read_file(folder / "c/rank1.stderr.txt"), "one\ntwo\n");
  EXPECT_THAT(test::read_file(folder / "c/result.json"), HasSubstr("dq is wrong on rank 1"));
}

TEST(Capsule, HoldsTheDumpsOfItsCaseAlone) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "dumps");
  for (const char* name : {"te__x.safetensors", "te__x.group1.safetensors", "te__xy.safetensors"}) {
    std::ofstream(folder / "dumps" / name) << name;
  }
  write_capsule(folder / "c", example(), "", test::failed_case(0, "te/x"), folder / "dumps");
  EXPECT_TRUE(std::filesystem::exists(folder / "c/dump/te__x.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "c/dump/te__x.group1.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "c/dump/te__xy.safetensors"));
  CaseFinished second = test::failed_case(1, "te/x");
  second.dump_name = "te/xy";
  write_capsule(folder / "d", example(), "", second, folder / "dumps");
  EXPECT_TRUE(std::filesystem::exists(folder / "d/dump/te__xy.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "d/dump/te__x.safetensors"));
}

std::string error_of(const std::string& text) {
  const TemporaryFolder folder;
  std::ofstream(folder / "capsule.json") << text;
  try {
    read_capsule(folder / "capsule.json");
  } catch (const CaseError& e) {
    return e.what();
  }
  return "";
}

TEST(Capsule, ThatIsNoneIsRefusedWithTheReason) {
  EXPECT_THAT(error_of("{"), HasSubstr("is not a capsule"));
  EXPECT_THAT(error_of("[]"), HasSubstr("capsule.json"));
  EXPECT_THAT(error_of("{}"), HasSubstr("capsule"));
  Capsule later = example();
  later.capsule = 2;
  EXPECT_THAT(error_of(text_of(later)), HasSubstr("version 2 is unknown, the only known version is 1"));
  Capsule empty = example();
  empty.cases.clear();
  EXPECT_THAT(error_of(text_of(empty)), HasSubstr("cases: the list is empty"));
  const TemporaryFolder folder;
  EXPECT_THROW(read_capsule(folder / "none"), CaseError);
}

TEST(Capsule, ThatCannotBeWrittenSaysWhere) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THAT([&] { write_capsule(folder / "file/c", example(), "", {}); },
              ::testing::ThrowsMessage<std::runtime_error>(HasSubstr("file/c")));
}

}  // namespace
}  // namespace cp_pool
