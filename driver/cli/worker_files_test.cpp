#include "driver/cli/worker_files.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases/testing/temporary_folder.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool {
namespace {

namespace fs = std::filesystem;
using test::ScopedVariable;
using test::TemporaryFolder;
using test::write_file;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

void write_program(const fs::path& file) {
  write_file(file, "#!/bin/sh\n");
  fs::permissions(file, fs::perms::owner_all);
}

// Sets the working directory of this process for a scope.
class InFolder {
 public:
  explicit InFolder(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;
  ~InFolder() {
    std::error_code ignored;
    fs::current_path(before_, ignored);
  }

 private:
  fs::path before_;
};

TEST(WorkerFiles, OfACommandAreItsProgramAndTheWordsThatAreFiles) {
  const TemporaryFolder folder;
  write_program(folder / "worker");
  write_file(folder / "my worker.py", "");
  const std::string program = (folder / "worker").string();
  const std::string script = (folder / "my worker.py").string();
  const WorkerFiles files = worker_files(
      {.command = program + " --fast '" + script + "' nowhere.py " + folder.path().string() + " '" + script + "'"});
  EXPECT_THAT(files.needed, ElementsAre(folder / "worker", folder / "my worker.py"));
  EXPECT_THAT(files.modules, IsEmpty());
}

TEST(WorkerFiles, AProgramIsLookedUpInPathAndAScriptInTheWorkingFolder) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "none");
  fs::create_directories(folder / "bin/worker");  // a folder of that name is no program
  fs::create_directories(folder / "other");
  write_file(folder / "none/worker", "not executable");
  write_program(folder / "other/worker");
  write_file(folder / "script.py", "");
  const InFolder here{folder.path()};
  const ScopedVariable path{
      "PATH",
      ((folder / "none").string() + ":" + (folder / "bin").string() + ":" + (folder / "other").string()).c_str()};
  EXPECT_THAT(worker_files({.command = "worker ./script.py"}).needed,
              ElementsAre(folder / "other/worker", folder / "script.py"));
}

TEST(WorkerFiles, AProgramThatIsNotThereIsNamedAllTheSame) {
  const TemporaryFolder folder;
  EXPECT_THAT(worker_files({.command = (folder / "worker").string()}).needed, ElementsAre(folder / "worker"));
}

TEST(WorkerFiles, OfAnAdapterInAFileAreTheFileAndWhatItImportsFromItsFolder) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "parts");
  write_file(folder / "mine.py", "import os, json, torch\nimport helper\ndef f():\n    from parts import mask\n");
  write_file(folder / "helper.py", "import other\n");
  write_file(folder / "other.py", "raise SystemExit(1)\n");
  write_file(folder / "unrelated.py", "");
  write_file(folder / "parts/__init__.py", "");
  write_file(folder / "parts/mask.py", "");
  const WorkerFiles files = worker_files({.adapter = (folder / "mine.py").string() + ":NAME"});
  EXPECT_THAT(files.needed, ElementsAre(folder / "mine.py"));
  EXPECT_THAT(files.modules, UnorderedElementsAre(folder / "helper.py", folder / "other.py",
                                                  folder / "parts/__init__.py", folder / "parts/mask.py"));
}

TEST(WorkerFiles, OfAnAdapterInAPackageAreTheModulesOfThePackageNoneOfWhichIsImported) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "package/inner");
  write_file(folder / "package/__init__.py", "raise SystemExit(1)\n");
  write_file(folder / "package/inner/adapter.py", "");
  write_file(folder / "package/inner/data.json", "");
  const InFolder here{folder.path()};
  const WorkerFiles files = worker_files({.adapter = "package.inner.adapter:NAME"});
  EXPECT_THAT(files.needed, IsEmpty());
  EXPECT_THAT(files.modules, UnorderedElementsAre(folder / "package/__init__.py", folder / "package/inner/adapter.py"));
}

TEST(WorkerFiles, WhatTheInterpreterCannotSayIsLeftOut) {
  const TemporaryFolder folder;
  const std::string file = (folder / "mine.py").string();
  write_file(file, "def half(\n");
  EXPECT_THAT(worker_files({.adapter = file}).needed, ElementsAre(file));
  EXPECT_THAT(worker_files({.adapter = file}).modules, IsEmpty());
  EXPECT_THAT(worker_files({.adapter = "no_such_package.adapter:NAME"}).modules, IsEmpty());
  const WorkerFiles files = worker_files({.adapter = file, .python = (folder / "no_python").string()});
  EXPECT_THAT(files.needed, ElementsAre(file));
  EXPECT_THAT(files.modules, IsEmpty());
}

}  // namespace
}  // namespace cp_pool
