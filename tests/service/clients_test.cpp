// Several clients on one service: they take turns, and none of them sees, delays or ends the cases of another.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

using namespace ::testing;

using Clients = Service;

// The sequence numbers of the started cases. The cases of all clients are numbered together.
std::vector<int> sequence_in(const std::vector<json>& events) {
  std::vector<int> out;
  for (const json& event : of_type(events, "case_started")) out.push_back(event["seq"]);
  return out;
}

TEST_F(Clients, TakeTurnsCaseByCase) {
  const StartedService service({"--slots", "1"});
  RawClient many = RawClient::greeted();
  many.open("many");
  many.submit("many", "until_sigusr1");
  const int pid = many.event("pool_spawned")["pids"][0];
  many.event("case_started");
  for (int i = 0; i < 40; ++i) many.submit("many", "pass");
  many.close_run("many");
  many.status();  // its answer shows that the requests have been read

  std::vector<RawClient> few;
  for (const char* name : {"a", "b"}) {
    few.push_back(RawClient::greeted());
    few.back().open(name);
    for (int i = 0; i < 5; ++i) few.back().submit(name, "pass");
    few.back().close_run(name);
    few.back().status();
  }
  ::kill(pid, SIGUSR1);
  for (std::size_t i = 0; i < few.size(); ++i) {
    const std::vector<int> sequence = sequence_in(few[i].events_of(i == 0 ? "a" : "b"));
    ASSERT_THAT(sequence, SizeIs(5));
    // Between two cases of a client there is at most one case of each of the two other clients.
    for (std::size_t k = 1; k < sequence.size(); ++k) EXPECT_LE(sequence[k] - sequence[k - 1], 3) << k;
  }
  EXPECT_THAT(many.outcomes_of("many"), AllOf(SizeIs(41), Each(HasSubstr(": pass"))));
}

TEST_F(Clients, SeeTheirOwnCasesAlone) {
  const StartedService service({"--slots", "2"});
  std::vector<RawClient> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(RawClient::greeted());
    clients.back().open("run");  // runs of other clients have the same name
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 4; ++i) {
      clients[i].submit("run", round % 5 == 3 ? "sigsegv" : "pass", {{"id", fmt::format("{}-{}", i, round)}});
    }
  }
  for (int i = 0; i < 4; ++i) {
    clients[i].close_run("run");
    std::set<std::string> ids;
    for (const json& event : clients[i].events_of("run")) {
      if (!event.contains("id")) continue;
      EXPECT_THAT(event["id"].get<std::string>(), ::testing::StartsWith(fmt::format("{}-", i)));
      if (event["type"] == "case_finished") ids.insert(event["id"]);
    }
    EXPECT_THAT(ids, SizeIs(10));
  }
}

TEST_F(Clients, KnowThePoolsThatTheirCasesRunOn) {
  const StartedService service({"--slots", "1"});
  for (int i = 0; i < 2; ++i) {
    RawClient client = RawClient::greeted();
    std::vector<std::string> types;
    for (const json& event : client.run("pass")) types.push_back(event["type"]);
    EXPECT_THAT(types, ElementsAre("run_started", "pool_spawned", "pool_ready", "case_started", "case_finished",
                                   "run_finished"));
  }
}

// --- The end of one --------------------------------------------------------------------------------------------------

// A second client, whose case runs until expect_pass() ends it.
class Bystander {
 public:
  Bystander() {
    client_.open("bystander");
    client_.submit("bystander", "until_sigusr1");
    pid_ = client_.event("pool_spawned")["pids"][0];
    client_.event("case_started");
  }
  void expect_pass() {
    ::kill(pid_, SIGUSR1);
    client_.submit("bystander", "pass");
    client_.close_run("bystander");
    EXPECT_THAT(client_.outcomes_of("bystander"), ElementsAre("until_sigusr1: pass", "pass: pass"));
  }
  RawClient& client() { return client_; }

 private:
  RawClient client_ = RawClient::greeted();
  int pid_ = 0;
};

std::size_t unfinished_of(const json& status, int pid) {
  std::size_t out = 0;
  for (const json& client : status["clients"]) {
    if (client["pid"] == pid) out += client["unfinished"].get<std::size_t>();
  }
  return out;
}

std::size_t clients_in(const json& status) {
  return status["clients"].size();
}

TEST_F(Clients, CtrlCEndsTheCasesOfItsClientAndNobodyElses) {
  const StartedService service({"--slots", "3"});
  Bystander bystander;
  Program program{submit_words({"--events", path("events")}), {.in = stream_of({"hang", "pass"}, 2)}};
  wait_until("its case runs", [&] {
    const json status = bystander.client().status();
    return std::ranges::any_of(status["pools"], [](const json& pool) { return pool.value("runs", "") == "hang"; });
  });
  program.signal(SIGINT);
  const Finished done = program.wait();
  EXPECT_EQ(done.exit_code, 130) << done.err;
  EXPECT_THAT(outcomes_in(json_lines(read_file(path("events")))), Contains("hang: cancelled"));
  EXPECT_THAT(done.err, HasSubstr("on service 'default'"));
  bystander.expect_pass();
}

TEST_F(Clients, TheDeathOfAClientEndsItsCasesAndNobodyElses) {
  const StartedService service({"--slots", "3"});
  Bystander bystander;
  {
    const Program program{submit_words({"--jobs", "3"}), {.in = stream_of({"hang", "hang", "pass"}, 2)}};
    wait_until("one of its cases runs, and two wait", [&] {
      const json status = bystander.client().status();
      return unfinished_of(status, program.pid()) == 3 &&
             std::ranges::any_of(status["pools"], [](const json& pool) { return pool.value("runs", "") == "hang"; });
    });
  }  // killed
  wait_until("it is gone", [&] { return clients_in(bystander.client().status()) == 1; });
  // This case needs the slots of the client that was killed, so they are free again.
  RawClient next = RawClient::greeted();
  EXPECT_THAT(outcomes_in(next.run("pass", {}, 2)), ElementsAre("pass: pass"));
  const json counts = next.status()["counts"];
  EXPECT_EQ(counts["cancelled"], 1) << counts;
  EXPECT_EQ(counts["not-run"], 2) << counts;
  bystander.expect_pass();
}

TEST_F(Clients, AVanishedConnectionIsALostClient) {
  const StartedService service({"--slots", "3"});
  Bystander bystander;
  RawClient lost = RawClient::greeted();
  lost.open("lost");
  lost.submit("lost", "hang", {}, 2);
  lost.event("case_started");
  lost.vanish();
  wait_until("it is gone", [&] { return clients_in(bystander.client().status()) == 1; });
  wait_until("its case has ended", [&] { return bystander.client().status()["counts"]["cancelled"] == 1; });
  bystander.expect_pass();
}

// --- A stream of several cases at once -------------------------------------------------------------------------------

// The complete JSON lines that a file has so far.
std::vector<json> lines_so_far(const std::string& file) {
  const std::string text = std::filesystem::exists(file) ? read_file(file) : "";
  return json_lines(text.substr(0, text.rfind('\n') + 1));
}

// The pid of rank 0 of the pool on which the first case of the stream runs; 0 if it does not run yet.
int rank_of_first_case(const std::vector<json>& events) {
  for (const json& started : events) {
    if (started["type"] != "case_started" || started["index"] != 0) continue;
    for (const json& spawned : events) {
      if (spawned["type"] == "pool_spawned" && spawned["pool"] == started["pool"]) return spawned["pids"][0];
    }
  }
  return 0;
}

// With --jobs 2, the case of the first line ends only when the other cases have been answered.
TEST_F(Clients, SubmitLetsCasesOfAStreamOvertakeEachOther) {
  const StartedService service({"--slots", "2"});
  for (const std::string where : {"service", "local"}) {
    SCOPED_TRACE(where);
    Words words = submit_words({"--json", "--jobs", "2", "--events", path(where)});
    if (where == "local") words.insert(words.end(), {"--no-service", "--slots", "2"});
    const std::string answers = path(where + ".answers");
    Program program{words, {.in = stream_of({"until_sigusr1", "pass", "pass"}), .out = answers}};
    wait_until("two answers", [&] { return lines_so_far(answers).size() == 2; });
    ::kill(rank_of_first_case(lines_so_far(path(where))), SIGUSR1);
    const Finished done = program.wait();
    EXPECT_EQ(done.exit_code, 0) << done.err;
    std::vector<int> numbers;
    for (const json& answer : lines_so_far(answers)) numbers.push_back(answer["number"]);
    EXPECT_THAT(numbers, ElementsAre(2, 3, 1));
    EXPECT_EQ(done.err.find("on service") != std::string::npos, where == "service") << done.err;
  }
}

TEST_F(Clients, OfAStreamNoMoreCasesRunThanAsked) {
  const StartedService service({"--slots", "4"});
  const Finished done =
      submit({"sleeps_20", "sleeps_20", "sleeps_20", "sleeps_20", "sleeps_20"}, {"--events", path("events")});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  int running = 0;
  for (const json& event : json_lines(read_file(path("events")))) {
    if (event["type"] == "case_finished") --running;
    if (event["type"] != "case_started") continue;
    EXPECT_EQ(++running, 1);
  }
}

}  // namespace
}  // namespace cp_pool::service_test
