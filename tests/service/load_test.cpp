// Six clients with many cases, beside two at a time that are killed; one case in twenty has a fault that is drawn at
// random. Each case of a living client must end once, and the service must grow neither in memory nor in descriptors.
// CP_POOL_SOAK_CASES sets the number of cases and CP_POOL_SOAK_SEED the seed.
#include <map>
#include <memory>
#include <random>
#include <set>

#include <fmt/format.h>

#include "tests/growth.h"
#include "tests/service/testing/service_fixture.h"

namespace cp_pool::service_test {
namespace {

using ::testing::SizeIs;

constexpr int kLivingClients = 6;
constexpr int kKilledClients = 2;  // at a time

const std::map<std::string, std::string> kFine{{"pass", "pass"}, {"skip", "skip"}, {"fail", "fail"}};
const std::map<std::string, std::string> kFaulty{
    {"sigsegv", "crash"},          {"sigkill", "crash"},   {"exit3", "crash"},  {"garbage_after_sentinel", "crash"},
    {"wrong_seq", "crash"},        {"unhealthy", "error"}, {"refuse", "error"}, {"half_result_then_exit", "crash"},
    {"result_then_death", "pass"}, {"hang", "timeout"}};

std::string draw(std::mt19937& random) {
  const auto& kinds = random() % 20 == 0 ? kFaulty : kFine;
  return std::next(kinds.begin(), static_cast<std::ptrdiff_t>(random() % kinds.size()))->first;
}

std::string draw_stream(std::mt19937& random, int cases) {
  std::string out;
  for (int i = 0; i < cases; ++i) {
    std::string model = draw(random);
    // A hang lasts until its deadline, so seven of eight are replaced.
    if (model == "hang" && random() % 8 != 0) model = "sigkill";
    out += json{{"id", model}, {"case", fake_case(model, 1 << (random() % 2))}}.dump() + '\n';
  }
  return out;
}

std::size_t finished_in(const json& status) {
  std::size_t out = 0;
  for (const auto& [outcome, count] : status["counts"].items()) out += count.get<std::size_t>();
  return out;
}

// The memory and the descriptors of the service, sampled each time that so many more cases have finished.
struct Samples {
  std::vector<std::int64_t> memory_kib;
  std::vector<std::int64_t> descriptors;
};

class Load : public Service {
 protected:
  [[nodiscard]] std::unique_ptr<Program> start_client(const std::string& name, const std::string& stream) const {
    write_file(path(name + ".in"), stream);
    return std::make_unique<Program>(submit_words({"--service", "default", "--jobs", "4", "--json", "--timeout", "5s",
                                                   "--events", path(name + ".events")}),
                                     Program::Redirect{.in = path(name + ".in"), .out = path(name + ".out")});
  }
  // Expects one answer for each case of the client, with the outcome of its kind, and an exact ledger.
  void expect_exact(const std::string& name) const {
    const std::vector<json> cases = json_lines(read_file(path(name + ".in")));
    std::set<std::size_t> numbers;
    for (const json& answer : json_lines(read_file(path(name + ".out")))) {
      const std::size_t number = answer["number"];
      EXPECT_TRUE(numbers.insert(number).second) << name << ": two answers to case " << number;
      const std::string model = cases.at(number - 1)["id"];
      EXPECT_EQ(answer["id"], model);
      const std::string& expected = kFine.contains(model) ? kFine.at(model) : kFaulty.at(model);
      EXPECT_EQ(answer["outcome"], expected) << name << " " << model << ": " << answer["reason"];
    }
    EXPECT_THAT(numbers, SizeIs(cases.size())) << name;
    const std::vector<json> events = json_lines(read_file(path(name + ".events")));
    ASSERT_FALSE(events.empty()) << name;
    const json& finished = events.back();
    EXPECT_EQ(finished["type"], "run_finished") << name;
    EXPECT_EQ(finished["ledger_exact"], true) << name;
    EXPECT_EQ(finished["expanded"], cases.size()) << name;
  }
};

TEST_F(Load, EveryCaseOfALivingClientEndsOnceAndTheServiceDoesNotGrow) {
  const int cases = from_environment("CP_POOL_SOAK_CASES", 1000);
  const int seed = from_environment("CP_POOL_SOAK_SEED", 1234);
  std::mt19937 random(static_cast<unsigned>(seed));
  const auto begin = std::chrono::steady_clock::now();
  StartedService service({"--slots", "8", "--idle", "1s"});

  std::map<std::string, std::unique_ptr<Program>> living;
  for (int i = 0; i < kLivingClients; ++i) {
    const std::string name = fmt::format("living-{}", i);
    living[name] = start_client(name, draw_stream(random, cases / kLivingClients));
  }
  // While there are cases, other clients come and are killed, each after a random number of finished cases.
  RawClient watcher = RawClient::greeted();
  std::vector<std::pair<std::unique_ptr<Program>, std::size_t>> killed;  // each with that number
  int kills = 0;
  Samples samples;
  for (std::size_t finished = 0;;) {
    const json status = watcher.status();
    finished = finished_in(status);
    if (samples.memory_kib.size() * static_cast<std::size_t>(cases) <= finished * 40) {
      samples.memory_kib.push_back(memory_kib_of(service.pid()));
      samples.descriptors.push_back(static_cast<std::int64_t>(descriptors_of(service.pid())));
    }
    kills += static_cast<int>(std::erase_if(killed, [&](const auto& one) { return one.second <= finished; }));
    const bool all_here = std::ranges::none_of(living, [](const auto& client) { return client.second->running(); });
    if (all_here) break;
    while (killed.size() < kKilledClients) {
      killed.emplace_back(start_client(fmt::format("killed-{}", killed.size()), draw_stream(random, 200)),
                          finished + 1 + random() % 100);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  killed.clear();
  for (auto& [name, program] : living) {
    const Finished done = program->wait();
    EXPECT_EQ(done.exit_code, 100) << name << done.err;
    expect_exact(name);
  }
  wait_until("the cases of those that were killed have ended", [&] {
    const json status = watcher.status();
    return status["clients"].size() == 1 && std::ranges::none_of(status["pools"], [](const json& pool) {
             return pool["state"] == "busy" || pool["state"] == "ending";
           });
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{} cases of {} clients and {} kills, {:.1f} s; memory {} KiB; descriptors {}\n", cases, kLivingClients,
             kills, took.count(), testing::PrintToString(samples.memory_kib),
             testing::PrintToString(samples.descriptors));
  EXPECT_GE(kills, cases / 200);
  ASSERT_GE(samples.memory_kib.size(), 8U);
  // The allocator keeps the memory of the fullest moment, and that moment is chance.
  EXPECT_LE(growth_after_warm_up(samples.memory_kib), 4096);
  // The number of living pools is chance.
  EXPECT_LE(growth_after_warm_up(samples.descriptors), 40);
  watcher.vanish();
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait().exit_code, 0);
}

}  // namespace
}  // namespace cp_pool::service_test
