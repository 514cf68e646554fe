// The real program must not overwrite files of its user.
#include "driver/cli/testing/command_line_fixture.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class OutputSafety : public CommandLine {
 protected:
  void SetUp() override {
    CommandLine::SetUp();
    write_file(path("case.json"), case_of("pass") + "\n");
    write_file(path("worker.py"), "");
  }

  // Expects that the command is refused with a line that says that both are one file, and that the file is unchanged.
  void expect_refused(Words words, const std::string& file, const std::string& part, const std::string& in = "") {
    const std::string before = read_file(path(file));
    words.insert(words.begin(), kProgram);
    const Finished done = run_to_end(words, {.in = in.empty() ? "/dev/null" : in});
    EXPECT_EQ(done.exit_code, 2) << ::testing::PrintToString(words) << done.err;
    EXPECT_THAT(done.err, AllOf(is_one_error(part), HasSubstr(" are the same file")));
    EXPECT_EQ(read_file(path(file)), before) << ::testing::PrintToString(words);
  }
};

TEST_F(OutputSafety, NoOutputOfAnyCommandMayBeAFileThatItReads) {
  ASSERT_EQ(run("model=fail", {"--events", path("e")}).exit_code, 100);
  std::filesystem::create_symlink("e", folder / "link");
  std::filesystem::create_hard_link(folder / "demo.json", folder / "hard");
  for (const std::string option : {"--junit", "--html", "--events"}) {
    expect_refused(run_words("model=pass", {option, path("demo.json")}), "demo.json", option);
    expect_refused(run_words("model=pass", {option, path("hard"), "--force"}), "demo.json", option);
    expect_refused(run_words("model=pass", {"--worker", "python3 " + path("worker.py"), option, path("worker.py")}),
                   "worker.py", "--worker " + path("worker.py"));
    expect_refused(run_words("model=pass", {"--mode", "perf", "--baseline", path("e"), option, path("link")}), "e",
                   "--baseline");
    expect_refused({"submit", path("case.json"), option, path("case.json")}, "case.json", option);
    expect_refused({"submit", "-", option, path("case.json")}, "case.json", "stdin", path("case.json"));
    expect_refused({"submit", kPass, "--matrix", path("demo.json"), option, path("hard")}, "demo.json", "--matrix");
    if (option == "--events") continue;
    expect_refused(run_words("*", {"--rerun-failed", path("e"), option, path("link")}), "e", "--rerun-failed");
    expect_refused({"report", path("e"), option, path("link")}, "e", "the events file " + path("e"));
  }
}

TEST_F(OutputSafety, TheEventsOfARerunMayReplaceThoseOfTheRunByAnyName) {
  ASSERT_EQ(run("model=fail | model=pass", {"--events", path("e")}).exit_code, 100);
  std::filesystem::create_symlink("e", folder / "link");
  EXPECT_EQ(run("*", {"--rerun-failed", path("e"), "--events", path("link")}).exit_code, 100);
  EXPECT_THAT(call({"report", path("e")}).last_line(), StartsWith("1 expanded = 0 pass + 1 fail"));
}

TEST_F(OutputSafety, NoOutputMayBeAnotherOutput) {
  write_file(path("e"), "");
  std::filesystem::create_symlink("e", folder / "link");
  std::filesystem::create_symlink("new", folder / "dangling");
  for (const auto& [one, other] : std::vector<std::pair<std::string, std::string>>{
           {"e", "link"}, {"dangling", "new"}, {"new", "./new"}, {"none/new", "none/../none/new"}}) {
    for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
             {"--events", "--junit"}, {"--html", "--junit"}, {"--events", "--html"}, {"--run-dir", "--events"}}) {
      const Finished done = run("model=pass", {first, path(one), second, path(other)});
      EXPECT_EQ(done.exit_code, 2) << first << one << second << other;
      EXPECT_THAT(done.err, AllOf(is_one_error(first), HasSubstr(second), HasSubstr(" are the same file")));
    }
  }
  const Finished same = run("model=pass", {"--run-dir", path("one"), "--dump", path("one")});
  EXPECT_EQ(same.exit_code, 0) << "a folder has room for both: " << same.err;
}

TEST_F(OutputSafety, StdoutIsAnOutputToo) {
  Words words = program_words("model=pass", {"--events", path("out")});
  EXPECT_THAT(run_to_end(words, {.in = "/dev/null", .out = path("out")}),
              refuses(2, "--events " + path("out") + " and stdout are the same file"));
  const std::string before = read_file(path("demo.json"));
  for (const char* command : {"list --matrix", "explain demo/pass/p2p/cp1/bshd/fp32 --matrix", "run --matrix"}) {
    const std::string line = kProgram + " " + command + " demo.json >> demo.json";
    EXPECT_EQ(run_to_end({"sh", "-c", "cd " + folder.path().string() + " && " + line}).exit_code, 2) << line;
    EXPECT_EQ(read_file(path("demo.json")), before) << line;
  }
  const std::string doctor = kProgram + " doctor --worker 'python3 worker.py' >> worker.py";
  EXPECT_EQ(run_to_end({"sh", "-c", "cd " + folder.path().string() + " && " + doctor}).exit_code, 2);
}

TEST_F(OutputSafety, AFileOfAnotherProgramIsReplacedByForceAlone) {
  ASSERT_EQ(run("model=pass", {"--events", path("e"), "--junit", path("j"), "--html", path("h")}).exit_code, 0);
  write_file(path("pom"), "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<project/>\n");
  write_file(path("page"), "<!DOCTYPE html><html lang=\"en\"><head></head></html>");
  write_file(path("blank"), "\n");
  for (const auto& [option, own] :
       std::vector<std::pair<std::string, std::string>>{{"--events", "e"}, {"--junit", "j"}, {"--html", "h"}}) {
    for (const std::string file : {"e", "j", "h", "case.json", "pom", "page", "blank"}) {
      if (file == own) continue;
      const std::string before = read_file(path(file));
      const Finished done = run("model=pass", {option, path(file)});
      EXPECT_EQ(done.exit_code, 2) << option << file;
      EXPECT_THAT(done.err, AllOf(is_one_error(option + " " + path(file)), HasSubstr("--force")));
      EXPECT_EQ(read_file(path(file)), before) << option << file;
    }
  }
  const Words own = {"--events", path("e"), "--junit", path("j"), "--html", path("h")};
  EXPECT_EQ(run("model=pass", own).exit_code, 0);
  for (const char* name : {"e", "j", "h"}) write_file(path(name), read_file(path(name)).substr(0, 5));
  EXPECT_EQ(run("model=pass", own).exit_code, 0) << "of a disk that was full";
  for (const char* name : {"e", "j", "h"}) write_file(path(name), "");
  EXPECT_EQ(run("model=pass", own).exit_code, 0);
  for (const char* name : {"e", "j", "h"}) write_file(path(name), "mine");
  EXPECT_EQ(run("model=pass", own).exit_code, 2);
  Words forced = own;
  forced.emplace_back("--force");
  EXPECT_EQ(run("model=pass", forced).exit_code, 0);
  for (const char* name : {"e", "j", "h"}) EXPECT_NE(read_file(path(name)), "mine");
  EXPECT_THAT(call({"report", "--html", path("e"), path("e")}), exits(2));
  ASSERT_EQ(run("model=pass", {"--events", path("e2")}).exit_code, 0);
  EXPECT_THAT(call({"report", "--html", path("e"), path("e2")}),
              refuses(2, "this file is no HTML report of cp-pool (it begins with '{\"v\":1,\"ts\":"));
}

}  // namespace
}  // namespace cp_pool::test
