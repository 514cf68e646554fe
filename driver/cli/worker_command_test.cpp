#include "driver/cli/worker_command.h"

#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/cli/program_paths.h"

namespace cp_pool {
namespace {

using ::testing::ElementsAre;
using testing::HasSubstr;

class WorkerCommands : public testing::Test {
 protected:
  // Makes sure that there is a worker beside this test.
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
  const WorkerCommand command = worker_command({});
  EXPECT_THAT(command.words, ElementsAre(default_worker().string()));
  EXPECT_TRUE(command.shipped);
}

TEST_F(WorkerCommands, OfTheShippedNameOrPathAreTheShippedOneWithItsOptions) {
  for (const std::string& name : {std::string{"cp-pool-worker"}, default_worker().string()}) {
    const WorkerCommand command = worker_command({.command = "'" + name + "' --no-rehearsal"});
    EXPECT_THAT(command.words, ElementsAre(default_worker().string(), "--no-rehearsal"));
    EXPECT_TRUE(command.shipped);
  }
}

TEST_F(WorkerCommands, OfAnotherProgramAreTheUsers) {
  const WorkerCommand command = worker_command({.command = "python3 'my worker.py'"});
  EXPECT_THAT(command.words, ElementsAre("python3", "my worker.py"));
  EXPECT_FALSE(command.shipped);
  EXPECT_FALSE(worker_command({.command = "/elsewhere/cp-pool-worker"}).shipped);
}

TEST_F(WorkerCommands, HaveAnImplementationThatTheirNamesTellApart) {
  const std::string here = std::filesystem::current_path().string();
  const auto implementation = [](const std::string& command) {
    return worker_command({.command = command}).implementation;
  };
  EXPECT_EQ(worker_command({}).implementation, "own");
  EXPECT_EQ(implementation("cp-pool-worker"), "own");
  EXPECT_EQ(implementation(default_worker().string()), "own");
  EXPECT_EQ(implementation("cp-pool-worker --no-rehearsal"), "worker cp-pool-worker --no-rehearsal");
  EXPECT_EQ(implementation("python3 'my worker.py'"), "worker python3 'my worker.py'");
  EXPECT_EQ(implementation("./mine --fast"), "worker " + here + "/mine --fast");
  EXPECT_EQ(implementation("/elsewhere/cp-pool-worker"), "worker /elsewhere/cp-pool-worker");
  EXPECT_EQ(worker_command({.adapter = "mine.py:ring"}).implementation, "adapter " + here + "/mine.py:ring");
  EXPECT_EQ(worker_command({.adapter = "package.module:ring"}).implementation, "adapter package.module:ring");
}

TEST(AdapterCommands, RunTheWorkerOfThePackageInItsInterpreter) {
  const WorkerCommand command = worker_command({.adapter = "package.module:ring", .python = "/venv/bin/python"});
  EXPECT_THAT(command.words, ElementsAre("/venv/bin/python", "-m", "cp_pool.worker", "package.module:ring"));
  EXPECT_THAT(command.fork_server, ElementsAre("/venv/bin/python", "-m", "cp_pool.server", "package.module:ring"));
  EXPECT_TRUE(command.adapter());
  EXPECT_FALSE(command.shipped);
  EXPECT_EQ(worker_command({.adapter = "a:b"}).words.front(), default_python());
  EXPECT_FALSE(worker_command({}).adapter());
}

TEST(AdapterCommands, HaveFilesByTheirAbsolutePath) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(worker_command({.adapter = "mine.py"}).words.back(), here + "/mine.py");
  EXPECT_EQ(worker_command({.adapter = "sub/../mine.py:ring"}).words.back(), here + "/mine.py:ring");
}

TEST(AdapterPlaces, AreFilesOrModules) {
  EXPECT_EQ(adapter_place("mine.py").file, "mine.py");
  EXPECT_EQ(adapter_place("mine.py").name, "");
  EXPECT_EQ(adapter_place("a/mine.py:ring").file, "a/mine.py");
  EXPECT_EQ(adapter_place("a/mine.py:ring").name, "ring");
  EXPECT_EQ(adapter_place("package.module:ring").file, "");
  EXPECT_EQ(adapter_place("package.module:ring").name, "ring");
}

TEST(AdapterPlaces, ThatCannotBeAreNamed) {
  const test::TemporaryFolder folder;
  const std::string file = (folder / "mine.py").string();
  EXPECT_EQ(wrong_with_adapter(file), "there is no file " + file);
  test::write_file(file, "");
  EXPECT_EQ(wrong_with_adapter(file), "");
  EXPECT_EQ(wrong_with_adapter(file + ":ring"), "");
  EXPECT_EQ(wrong_with_adapter(file + ":"), "'' is not the name of an adapter");
  EXPECT_EQ(wrong_with_adapter(file + ":1st"), "'1st' is not the name of an adapter");
  EXPECT_EQ(wrong_with_adapter("package.module:ring"), "");
  for (const char* const none : {"mine", "package.module", "a b:ring", ".module:ring", ""}) {
    EXPECT_THAT(wrong_with_adapter(none), ::testing::HasSubstr("is neither FILE.py[:NAME] nor package.module:NAME"))
        << none;
  }
}

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
