// A command says and writes the same with a service as without one.
#include <regex>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Removes the fields that may differ: times, sequence numbers, pools with their processes and slots, hygiene.
void strip(json& value) {
  if (value.is_array()) {
    for (json& item : value) strip(item);
    return;
  }
  if (!value.is_object()) return;
  for (auto field = value.begin(); field != value.end();) {
    const std::string& name = field.key();
    const bool differs = name.ends_with("_ms") || name == "ts" || name == "seq" || name == "pool" || name == "pid" ||
                         name == "pids" || name == "slots" || name == "hygiene" || name == "startup_ms" ||
                         name == "exits" || name == "duration";
    if (differs) {
      field = value.erase(field);
    } else {
      strip(field.value());
      ++field;
    }
  }
}

// Replaces the numbers that may differ: sequence numbers, times, generations of pools, timestamps and pids.
std::string without_numbers(const std::string& text) {
  std::string out = std::regex_replace(text, std::regex(R"(seq \d+)"), "seq N");
  out = std::regex_replace(out, std::regex(R"( *\d+(\.\d+)? (ms|s)\b)"), " TIME");
  out = std::regex_replace(out, std::regex(R"((cpu/\d+) #\d+)"), "$1 #G");
  out = std::regex_replace(out, std::regex(R"((time|timestamp)="[^"]*")"), "$1");
  out = std::regex_replace(out, std::regex(R"(\bpid \d+)"), "pid N");
  return out;
}

// The events, one per line, so that a difference shows. Events of pools are sorted and put behind the events of cases:
// whether a pool has ended before the next one is ready is chance.
std::string stripped_lines(const std::string& text) {
  std::string out;
  std::vector<std::string> of_pools;
  for (json line : json_lines(text)) {
    const std::string type = line.value("type", "");
    // On a service the pool lives on, so its end is not among the client's events.
    if (type == "pool_retired" && line["reason"] == "finished") continue;
    strip(line);
    const std::string stripped = without_numbers(line.dump()) + '\n';
    if (type.starts_with("pool_")) {
      of_pools.push_back(stripped);
    } else {
      out += stripped;
    }
  }
  std::ranges::sort(of_pools);
  for (const std::string& line : of_pools) out += line;
  return out;
}

class SameAsLocal : public Service {
 protected:
  // What a command prints and writes.
  struct Said {
    int exit_code = 0;
    std::string out;
    std::string err;
    std::string events;
    std::string junit;
  };
  // Runs the command with the same output files each time, because its output names them.
  Said say(Words words, const Words& more, const std::string& in = "/dev/null") {
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--events", path("events"), "--junit", path("junit")});
    const Finished done = run_to_end(words, {.in = in});
    Said out{done.exit_code, done.out, done.err, stripped_lines(read_file(path("events"))),
             without_numbers(read_file(path("junit")))};
    for (const char* file : {"events", "junit"}) std::filesystem::remove(path(file));
    return out;
  }
  static void expect_same(const Said& local, const Said& served) {
    EXPECT_EQ(local.exit_code, served.exit_code);
    EXPECT_EQ(local.events, served.events);
    EXPECT_EQ(local.junit, served.junit);
    EXPECT_THAT(served.err, HasSubstr("on service"));
    EXPECT_THAT(local.err, Not(HasSubstr("service")));
  }
};

const Words kLocal{"--no-service", "--slots", "2", "--spare", "off"};

// Cases of one rank, because which of several ranks dies first is chance.
TEST_F(SameAsLocal, AnswersToAStreamOfFaults) {
  const StartedService service({"--slots", "2"});
  std::istringstream words{
      "pass fail skip error sigsegv pass exit3 wrong_seq refuse closes_stdout full_result progress_then_exit unhealthy "
      "pass tells_its_case diag_good half_result_then_exit pass"};
  const std::vector<std::string> models{std::istream_iterator<std::string>{words}, {}};
  const std::string stream = stream_of(models);
  const Said local = say(submit_words({"--json"}), kLocal, stream);
  const Said served = say(submit_words({"--json"}), {}, stream);
  EXPECT_EQ(stripped_lines(local.out), stripped_lines(served.out));
  EXPECT_EQ(json_lines(served.out).size(), models.size());
  expect_same(local, served);
}

TEST_F(SameAsLocal, TextOfAStream) {
  const StartedService service({"--slots", "2"});
  const std::string stream = stream_of({"pass", "fail", "skip", "pass", "error", "unhealthy", "diag_good"}, 2);
  const Said local = say(submit_words(), kLocal, stream);
  const Said served = say(submit_words(), {}, stream);
  expect_same(local, served);
  EXPECT_EQ(without_numbers(local.out), without_numbers(served.out));
}

TEST_F(SameAsLocal, AMatrix) {
  const StartedService service({"--slots", "1"});
  const Words words = {kProgram, "run",      "--matrix", path("demo.json"), "--worker",    kWorker,   "--grace",
                       "100ms",  "--repeat", "2",        "--filter",        "!model=hang", "--order", "reverse"};
  const Said local = say(words, {"--slots", "1", "--spare", "off"});
  const Said served = say(words, {"--service"});
  expect_same(local, served);
  EXPECT_EQ(without_numbers(local.out), without_numbers(served.out));
  EXPECT_EQ(served.exit_code, 100);
}

TEST_F(SameAsLocal, WhatOverridesSayOfCases) {
  const StartedService service({"--slots", "1"});
  // The worker writes to a file that its command does not name: a file that the command names belongs to the worker,
  // and a change of it would replace the pool.
  write_file(path("overrides.toml"),
             "[profile.default]\nworker = '''" + kWorker +
                 "'''\n"
                 "[[override]]\nfilter = \"model=pass\"\nskip = \"no room\"\n"
                 "[[override]]\nfilter = \"model=pass_2\"\nxfail = \"issue 5\"\nxfail-strict = true\n"
                 "[[override]]\nfilter = \"model=fail\"\nxfail = \"issue 6\"\n"
                 "[[override]]\nfilter = \"model=error\"\nretries = 1\n"
                 "[[override]]\nfilter = \"model=skip\"\nenvironment.MINE = \"a b\"\n"
                 "worker = '''sh -c 'echo \"$MINE\" >> \"$0.log\"; exec \"$@\"' " +
                 path("said") + " " + kWorker + "'''\n");
  const Words words = {kProgram,   "run",         "--matrix",   path("demo.json"), "--config",   path("overrides.toml"),
                       "--filter", "model=pass*", "model=fail", "model=error",     "model=skip", "--order",
                       "listed"};
  const Said local = say(words, {"--slots", "1", "--spare", "off"});
  const Said served = say(words, {"--service"});
  expect_same(local, served);
  EXPECT_EQ(served.exit_code, 100);
  EXPECT_THAT(served.events, HasSubstr(R"("expected_failures":1)"));
  EXPECT_THAT(served.events, HasSubstr(R"("strict_passes":1)"));
  EXPECT_THAT(served.events, HasSubstr(R"("reason":"no room")"));
  EXPECT_THAT(served.events, HasSubstr(R"("case_tried")"));
  EXPECT_EQ(read_file(path("said.log")), "a b\na b\n") << "one pool each";
}

TEST_F(SameAsLocal, ExitCodesOfEveryKind) {
  const StartedService service({"--slots", "2"});
  struct Kind {
    std::vector<std::string> models;
    Words options;
    int code;
  };
  const std::vector<Kind> kinds{{{"pass", "skip"}, {}, 0},
                                {{"skip"}, {"--no-skip"}, 96},
                                {{"pass", "fail"}, {}, 100},
                                {{"sigsegv"}, {}, 100},
                                {{"hang"}, {"--timeout", "300ms"}, 100},
                                {{"fail", "pass", "pass"}, {"-x"}, 100},
                                {{"pass"}, {"--worker", kFakeWorker + " --start=exit_1"}, 96},
                                {{"pass"}, {"--worker", path("nothing here")}, 96}};
  for (const Kind& kind : kinds) {
    for (const bool with_service : {false, true}) {
      Words words = kind.options;
      if (!with_service) words.emplace_back("--no-service");
      const Finished done = submit(kind.models, words);
      EXPECT_EQ(done.exit_code, kind.code)
          << testing::PrintToString(kind.models) << testing::PrintToString(words) << done.err << done.out;
    }
  }
}

TEST_F(SameAsLocal, ABadLineOfAStreamIsTheSameRefusal) {
  const StartedService service({"--slots", "1"});
  write_file(path("bad"),
             "{\"id\":\"x\"\n" + json{{"case", fake_case("pass")}}.dump() + "\n{\"case\":{\"cp_sise\":1}}\n");
  std::vector<std::string> outs;
  std::vector<int> codes;
  for (const char* where : {"--no-service", "--service=default"}) {
    const Finished done = run_to_end(submit_words({"--json", where}), {.in = path("bad")});
    codes.push_back(done.exit_code);
    outs.push_back(stripped_lines(done.out));
  }
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_EQ(codes[0], 94);
  EXPECT_EQ(outs[0], outs[1]);
}

}  // namespace
}  // namespace cp_pool::service_test
