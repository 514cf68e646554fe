// A client that is slow, wrong or hostile delays no other client and leaves nothing behind in the service.
#include <algorithm>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

using namespace ::testing;

using BadClients = Service;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

void expect_that_others_are_served(int cases = 3) {
  RawClient client = RawClient::greeted();
  client.open("run");
  for (int i = 0; i < cases; ++i) client.submit("run", "pass");
  client.close_run("run");
  EXPECT_THAT(client.outcomes_of("run"), AllOf(SizeIs(cases), Each("pass: pass")));
}

// Remembers how many descriptors the service has while nobody is connected and no pool lives.
class Descriptors {
 public:
  explicit Descriptors(const StartedService& service) : service_(service) {
    // The connection with which StartedService probed the service is gone then.
    wait_until("it is alone", [&] { return RawClient::greeted().status()["clients"].size() == 1; });
    expected_ = settled();
  }
  void expect_none_left() const {
    wait_until("its descriptors are closed", [&] { return descriptors_of(service_.pid()) <= expected_; });
  }

 private:
  [[nodiscard]] std::size_t settled() const {
    std::size_t least = descriptors_of(service_.pid());
    for (int i = 0; i < 20; ++i) {
      RawClient::greeted().status();
      least = std::min(least, descriptors_of(service_.pid()));
    }
    return least;
  }
  const StartedService& service_;
  std::size_t expected_ = 0;
};

// --- Slow ------------------------------------------------------------------------------------------------------------

TEST_F(BadClients, OneThatDoesNotReadHoldsUpItsOwnCasesAlone) {
  const StartedService service({"--slots", "2"});
  RawClient slow = RawClient::greeted();
  slow.open("slow");
  constexpr int kCases = 400;
  // Each of these cases writes 10 MiB to stderr, whose last lines are in the answer.
  for (int i = 0; i < kCases; ++i) slow.submit("slow", "chatter_stderr", {{"number", i}});
  slow.close_run("slow");
  wait_until("it is held", [] {
    const json clients = RawClient::greeted().status()["clients"];
    return std::ranges::any_of(clients, [](const json& client) { return client["held"] == true; });
  });
  expect_that_others_are_served();
  const json counts = RawClient::greeted().status()["counts"];
  EXPECT_LT(counts["fail"], kCases) << "its cases run on though nobody reads of them";
  // When the client reads at last, it gets each case exactly once.
  const std::vector<json> events = slow.events_of("slow");
  std::vector<int> numbers;
  for (const json& event : of_type(events, "case_finished")) numbers.push_back(event["number"]);
  std::ranges::sort(numbers);
  ASSERT_THAT(numbers, SizeIs(kCases));
  for (int i = 0; i < kCases; ++i) EXPECT_EQ(numbers[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(events.back()["ledger_exact"], true);
  EXPECT_LT(memory_kib_of(service.pid()), 64 * 1024);
}

// A client that sends more than the service takes has to wait. The memory of the service does not grow.
TEST_F(BadClients, OneThatAsksForMoreThanThereIsToDoIsReadNoFurther) {
  const StartedService service({"--slots", "1"});
  RawClient greedy = RawClient::greeted();
  greedy.open("greedy");
  greedy.submit("greedy", "hang");
  greedy.event("case_started");
  // The service takes 10,000 cases and the socket some more bytes; then every send is refused.
  ASSERT_EQ(::fcntl(greedy.fd(), F_SETFL, O_NONBLOCK), 0);
  const std::string line = json{{"request", "submit"}, {"run", "greedy"}, {"case", fake_case("pass")}}.dump() + '\n';
  std::size_t sent = 0;
  int refused = 0;  // in a row
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (refused < 100 || (sent / line.size() < 9999 && std::chrono::steady_clock::now() < limit)) {
    const std::size_t rest = line.size() - sent % line.size();
    const ssize_t size = ::send(greedy.fd(), line.data() + sent % line.size(), rest, MSG_NOSIGNAL | MSG_DONTWAIT);
    refused = size < 0 ? refused + 1 : 0;
    if (size < 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (size > 0) sent += static_cast<std::size_t>(size);
    ASSERT_LT(sent / line.size(), 50000U) << "it is read without end";
  }
  EXPECT_GE(sent / line.size(), 9999U);
  EXPECT_EQ(RawClient::greeted().status()["stopping"], false);
  EXPECT_LT(memory_kib_of(service.pid()), 128 * 1024);
  greedy.vanish();
  expect_that_others_are_served();
}

// --- Wrong -----------------------------------------------------------------------------------------------------------

TEST_F(BadClients, GarbageIsRefusedLineByLine) {
  const StartedService service;
  RawClient wrong;
  wrong.say_bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const json reply = wrong.reply().value();
  EXPECT_EQ(reply["reply"], "refused");
  EXPECT_THAT(reply["message"].get<std::string>(), HasSubstr("line 1"));
  expect_that_others_are_served();
}

TEST_F(BadClients, HalfALineHoldsUpNobodyAndEndsWithItsClient) {
  const StartedService service;
  RawClient half = RawClient::greeted();
  half.say_bytes(R"({"request":"open","run":"ha)");
  expect_that_others_are_served();
  half.stop_talking();
  const std::vector<json> replies = half.rest();
  ASSERT_THAT(replies, SizeIs(1));
  EXPECT_EQ(replies[0]["reply"], "refused");
}

TEST_F(BadClients, ALineOf20MiBIsRefusedAndNotKept) {
  const StartedService service;
  RawClient wordy = RawClient::greeted();
  wordy.say_bytes(R"({"request":"open","run":")");
  const std::string part(kMiB, 'x');
  for (int i = 0; i < 20; ++i) wordy.say_bytes(part);
  wordy.say_bytes("\"}\n");
  const json refused = wordy.reply().value();
  EXPECT_EQ(refused["reply"], "refused");
  EXPECT_THAT(refused["message"].get<std::string>(), AllOf(HasSubstr("line 2"), HasSubstr("16 MiB")));
  EXPECT_THAT(outcomes_in(wordy.run("pass")), ElementsAre("pass: pass"));
  EXPECT_LT(memory_kib_of(service.pid()), 64 * 1024);
}

// The service stops reading from a client that writes nonsense for ever and reads none of the answers.
TEST_F(BadClients, NonsenseWithoutEndIsCutOff) {
  const StartedService service;
  RawClient wrong = RawClient::greeted();
  std::string nonsense;
  for (int i = 0; i < 10000; ++i) nonsense += "nonsense\n";
  ASSERT_EQ(::fcntl(wrong.fd(), F_SETFL, O_NONBLOCK), 0);
  int refused = 0;
  for (int i = 0; i < 2000 && refused < 100; ++i) {
    const ssize_t size = ::send(wrong.fd(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    refused = size < 0 ? refused + 1 : 0;
    if (size < 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GE(refused, 100) << "it is read without end";
  expect_that_others_are_served();
  EXPECT_LT(memory_kib_of(service.pid()), 128 * 1024);
}

// --- Many ------------------------------------------------------------------------------------------------------------

// While it lives, this process may have 4096 descriptors, if the system lets it.
class ManyDescriptors {
 public:
  ManyDescriptors() {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 4096);
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ManyDescriptors(const ManyDescriptors&) = delete;
  ManyDescriptors& operator=(const ManyDescriptors&) = delete;
  ~ManyDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
};

TEST_F(BadClients, AThousandConnectionsLockNobodyOutAndLeaveNothing) {
  const StartedService service({"--slots", "2", "--idle", "50ms"});
  const ManyDescriptors many;  // of this process, not of the service
  const Descriptors descriptors(service);
  RawClient first = RawClient::greeted();
  std::vector<RawClient> crowd;
  for (int i = 0; i < 1000; ++i) crowd.emplace_back();
  EXPECT_THAT(outcomes_in(first.run("pass")), ElementsAre("pass: pass"));
  // The connections of this process have reached its limit, but another process can still connect.
  EXPECT_THAT(submit({"pass"}, {"--service", "default"}), exits(0));
  EXPECT_THAT(crowd.back().reply_named("refused")["message"].get<std::string>(), HasSubstr("clients"));
  crowd.clear();
  first.vanish();
  descriptors.expect_none_left();
  expect_that_others_are_served();
}

// The clients are killed at different moments of their lives.
TEST_F(BadClients, ThoseThatAreKilledLeaveNothing) {
  const StartedService service({"--slots", "4", "--idle", "50ms"});
  const Descriptors descriptors(service);
  std::vector<std::string> models;
  for (int i = 0; i < 200; ++i) models.emplace_back(i % 7 == 6 ? "sigsegv" : "sleeps_5");
  const std::string stream = stream_of(models, 2);
  for (int i = 0; i < 30; ++i) {
    const Program program{submit_words({"--jobs", "4"}), {.in = stream}};
    std::this_thread::sleep_for(std::chrono::microseconds(i * 2500));
  }  // killed
  expect_that_others_are_served();
  wait_until("no run is left", [] { return RawClient::greeted().status()["clients"].size() == 1; });
  wait_until("no pool is left", [] { return RawClient::greeted().status()["pools"].empty(); });
  descriptors.expect_none_left();
  const json status = RawClient::greeted().status();
  EXPECT_EQ(status["devices"][0]["held"], 0);
}

TEST_F(BadClients, RunsWithoutEndAreRefused) {
  const StartedService service;
  RawClient client = RawClient::greeted();
  for (int i = 0; i < 65; ++i) client.open(fmt::format("run {}", i));
  EXPECT_THAT(client.reply_named("refused")["message"].get<std::string>(), HasSubstr("at most 64 runs"));
  client.say({{"request", "open"}, {"run", std::string(2000, 'x')}});
  EXPECT_THAT(client.reply_named("refused")["message"].get<std::string>(), HasSubstr("too long"));
}

}  // namespace
}  // namespace cp_pool::service_test
