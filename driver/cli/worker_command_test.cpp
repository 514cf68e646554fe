#include "driver/cli/worker_command.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/cli/program_paths.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;

class WorkerCommands : public testing::Test {
 protected:
  // Beside this test there need not be a worker.
  void SetUp() override {
    there_ = std::filesystem::exists(default_worker());
    if (!there_) std::ofstream(default_worker()) << "a worker";
  }
  void TearDown() override {
    if (!there_) std::filesystem::remove(default_worker());
  }

 private:
  bool there_ = false;
};

TEST_F(WorkerCommands, AreTheShippedOneIfNoneIsGiven) {
  const WorkerCommand command = worker_command("");
  EXPECT_THAT(command.words, ElementsAre(default_worker().string()));
  EXPECT_TRUE(command.shipped);
}

TEST_F(WorkerCommands, OfTheShippedNameOrPathAreTheShippedOneWithItsOptions) {
  for (const std::string& name : {std::string{"cp-pool-worker"}, default_worker().string()}) {
    const WorkerCommand command = worker_command("'" + name + "' --no-rehearsal");
    EXPECT_THAT(command.words, ElementsAre(default_worker().string(), "--no-rehearsal"));
    EXPECT_TRUE(command.shipped);
  }
}

TEST_F(WorkerCommands, OfAnotherProgramAreTheUsers) {
  const WorkerCommand command = worker_command("python3 'my worker.py'");
  EXPECT_THAT(command.words, ElementsAre("python3", "my worker.py"));
  EXPECT_FALSE(command.shipped);
  EXPECT_FALSE(worker_command("/elsewhere/cp-pool-worker").shipped);
}

}  // namespace
}  // namespace cp_pool
