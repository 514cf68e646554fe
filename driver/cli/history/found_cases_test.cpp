#include "driver/cli/history/found_cases.h"

#include <random>

#include <gmock/gmock.h>

#include "cases/case_json.h"
#include "cases/search/random_case.h"
#include "cases/testing/file_size_limit.h"
#include "cases/testing/temporary_folder.h"
#include "driver/testing/command_error.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::test {
namespace {

using namespace ::testing;

class Events : public EventSink {
 public:
  void on_event(const Event& event) override { seen.push_back(event); }
  std::vector<Event> seen;
};

SearchFound found(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  SearchFound event;
  event.id = "search/7-12/p2p/cp2/bshd/fp32";
  event.how = "fail of dq";
  event.smallest = "search/7-12/smallest-9/p2p/cp2/bshd/fp32";
  event.c = search::random_case(generator);
  return event;
}

TEST(FoundCases, AreThoseThatWereFound) {
  const TemporaryFolder folder;
  const auto file = folder / "state" / "found.jsonl";
  Events events;
  FoundSink sink(events, file, {});
  sink.on_event(found(1));
  sink.on_event(found(2));
  sink.on_event(found(1));
  EXPECT_THAT(events.seen, SizeIs(3)) << "all are passed on";
  const FoundCases read = read_found_cases(file);
  EXPECT_THAT(read.cases, ElementsAre(found(1).c, found(2).c));
  EXPECT_THAT(read.bad_lines, IsEmpty());
  const auto line = nlohmann::json::parse(read_file(file).substr(0, read_file(file).find('\n')));
  EXPECT_EQ(line["how"], "fail of dq");
  EXPECT_EQ(line["id"], "search/7-12/p2p/cp2/bshd/fp32");
  EXPECT_THAT(line["found"].get<std::string>(), ::testing::EndsWith("Z"));
}

TEST(FoundCases, ThatAreKnownAreNotAddedAgain) {
  const TemporaryFolder folder;
  Events events;
  FoundSink sink(events, folder / "found.jsonl", {found(1).c});
  sink.on_event(found(1));
  SearchFound kept = found(2);
  kept.kept = true;
  sink.on_event(kept);
  EXPECT_THAT(read_found_cases(folder / "found.jsonl").cases, IsEmpty());
}

TEST(FoundCases, OfAFileThatIsNotThereAreNone) {
  const TemporaryFolder folder;
  EXPECT_THAT(read_found_cases(folder / "none.jsonl").cases, IsEmpty());
}

TEST(FoundCases, NameEachBadLineAndPassOverIt) {
  const TemporaryFolder folder;
  const auto file = folder / "found.jsonl";
  const std::string good = R"({"case":)" + to_json(found(1).c).dump() + "}";
  write_file(file,
             good + "\nno json\n\n{\"case\":{\"heads\":\"two\"}}\n{\"id\":\"x\"}\n[1]\n" + good + "\n{\"case\":{\"hea");
  const FoundCases read = read_found_cases(file);
  EXPECT_THAT(read.cases, ElementsAre(found(1).c));
  const std::string name = file.string();
  EXPECT_THAT(read.bad_lines, ElementsAre(StartsWith(name + ":2:2: not JSON"),
                                          StartsWith(name + ":4, case: $.heads: \"two\" is not an integer"),
                                          StartsWith(name + ":5: $.case: this line has no case"),
                                          StartsWith(name + ":6: $: "), StartsWith(name + ":8:")));
}

TEST(FoundCases, StandOnALineOfTheirOwnBehindOneThatWasCut) {
  const TemporaryFolder folder;
  const auto file = folder / "found.jsonl";
  write_file(file, "{\"case\":{\"hea");
  Events events;
  FoundSink sink(events, file, {});
  sink.on_event(found(1));
  const FoundCases read = read_found_cases(file);
  EXPECT_THAT(read.cases, ElementsAre(found(1).c));
  EXPECT_THAT(read.bad_lines, SizeIs(1));
}

TEST(FoundCases, ThatCannotBeReadAreABadInput) {
  const TemporaryFolder folder;
  EXPECT_THAT(test::command_error(ExitCode::bad_input, [&] { read_found_cases(folder.path()); }),
              StartsWith("cannot read --found " + folder.path().string()));
}

TEST(FoundCases, ThatCannotBeWrittenAreTheLossOfTheOptionOnce) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  Events events;
  FoundSink sink(events, folder / "file" / "found.jsonl", {});
  sink.on_event(found(1));
  sink.on_event(found(2));
  ASSERT_THAT(events.seen, SizeIs(3));
  const auto& lost = std::get<OutputLost>(events.seen[1]);
  EXPECT_EQ(lost.output, "--found");
  EXPECT_THAT(lost.message, AllOf(HasSubstr("cannot write "), HasSubstr("found.jsonl")));
}

TEST(DefaultFoundFile, IsOfTheWorkerAndItsDevice) {
  const ScopedVariable state("XDG_STATE_HOME", "/state");
  const TemporaryFolder folder;
  write_file(folder / "mine.py", "");
  const auto of = [](const std::string& adapter, const std::string& command, const std::string& device) {
    return default_found_file({.command = command, .adapter = adapter}, device).value().string();
  };
  const std::string mine = (folder / "mine.py").string();
  EXPECT_THAT(of("", "", "cpu"), StartsWith("/state/cp-pool/found/cp-pool-worker-cpu-"));
  EXPECT_THAT(of(mine + ":ring", "", "cuda"), StartsWith("/state/cp-pool/found/mine.py-cuda-"));
  EXPECT_NE(of(mine + ":ring", "", "cpu"), of(mine + ":other", "", "cpu"));
  EXPECT_THAT(of("package.module:ring", "", "cpu"), StartsWith("/state/cp-pool/found/package.module-ring-cpu-"));
  EXPECT_THAT(of("", "python3 -u " + mine + " --fast", "cpu"), StartsWith("/state/cp-pool/found/mine.py-cpu-"));
  EXPECT_NE(of("", "python3 " + mine + " --fast", "cpu"), of("", "python3 " + mine, "cpu"));
  const std::string before = of(mine, "", "cpu");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(of("mine.py", "", "cpu"), before) << "wherever it is called from";
  std::filesystem::current_path(here);
}

TEST(DefaultFoundFile, IsInTheHomeFolderWithoutXdgAndNowhereWithoutAHome) {
  const ScopedVariable state("XDG_STATE_HOME", "");
  const ScopedVariable home("HOME", "/home/me");
  EXPECT_THAT(default_found_file({}, "cpu").value().string(),
              StartsWith("/home/me/.local/state/cp-pool/found/cp-pool-worker-cpu-"));
  const ScopedVariable homeless("HOME", "");
  EXPECT_EQ(default_found_file({}, "cpu"), std::nullopt);
}

}  // namespace
}  // namespace cp_pool::test
