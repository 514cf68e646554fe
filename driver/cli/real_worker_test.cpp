// cp-pool with the real worker: what only real ranks can show.
#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "driver/cli/program.h"
#include "driver/reporters/temporary_folder.h"

namespace cp_pool {
namespace {

using testing::Finished;
using testing::Program;
using testing::read_file;
using testing::TemporaryFolder;

struct Outputs {
  std::map<std::string, std::string> hashes;  // of all ranks, by case ID
  int generations = 0;                        // pools that were used
};

Outputs outputs_of(const std::vector<std::string>& more) {
  const TemporaryFolder folder;
  const std::string events = (folder / "events.jsonl").string();
  std::vector<std::string> words = {CP_POOL_PROGRAM, "run", "--filter", "cp_size=2 & model=causal", "--events", events};
  words.insert(words.end(), more.begin(), more.end());
  const Finished done = Program{words}.wait();
  EXPECT_EQ(done.exit_code, 0) << done.out << done.err;
  Outputs outputs;
  std::istringstream lines{read_file(events)};
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line);
    if (event["type"] != "case_finished") continue;
    std::string& hashes = outputs.hashes[event["id"]];
    for (const auto& rank : event["ranks"]) hashes += rank["output_hash"].get<std::string>() + " ";
    outputs.generations = std::max(outputs.generations, event["pool"]["generation"].get<int>());
  }
  return outputs;
}

TEST(RealWorker, AnIsolatedRunGivesTheSameOutputBitsAsAPooledOneInAnyOrder) {
  const Outputs pooled = outputs_of({});
  ASSERT_GE(pooled.hashes.size(), 3U);
  EXPECT_EQ(pooled.generations, 1);
  for (const auto& [id, hashes] : pooled.hashes) EXPECT_GT(hashes.size(), 4U) << id;

  const Outputs isolated = outputs_of({"--isolate"});
  EXPECT_EQ(isolated.generations, static_cast<int>(pooled.hashes.size()));
  EXPECT_EQ(isolated.hashes, pooled.hashes);
  EXPECT_EQ(outputs_of({"--order", "reverse"}).hashes, pooled.hashes);
}

}  // namespace
}  // namespace cp_pool
