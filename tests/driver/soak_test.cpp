// Many cases on pools of three world sizes; one case in twenty has a fault that is drawn at random. The ledger must be
// exact, and the driver must grow neither in memory nor in descriptors. CP_POOL_SOAK_CASES sets the number of cases and
// CP_POOL_SOAK_SEED the seed.
#include <malloc.h>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/testing/attention.h"
#include "tests/driver/fault_outcomes.h"
#include "tests/driver/harness.h"
#include "tests/growth.h"

namespace cp_pool::driver_test {
namespace {

using test::from_environment;
using test::growth_after_warm_up;
using testing::Contains;
using testing::IsEmpty;

// The kinds without a fault, and the outcomes that each may have.
const std::map<std::string, std::set<std::string>> kFine{{"pass", {"pass"}}, {"skip", {"skip"}}, {"fail", {"fail"}}};

// Sanitizers keep freed memory for a while, in order to find later uses of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedMemoryIsKept = true;
#else
constexpr bool kFreedMemoryIsKept = false;
#endif

std::string draw(std::mt19937& random, const std::map<std::string, std::set<std::string>>& kinds) {
  return std::next(kinds.begin(), static_cast<std::ptrdiff_t>(random() % kinds.size()))->first;
}

// The memory in KiB that this process has allocated and not freed. The resident memory would also depend on the
// allocator and on how much memory the machine has to spare.
std::int64_t allocated_kib() {
  const struct mallinfo2 heap = ::mallinfo2();
  return static_cast<std::int64_t>((heap.uordblks + heap.hblkhd) / 1024);
}

std::vector<Item> draw_cases(int count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Item> cases;
  cases.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    const bool faulty = random() % 20 == 0;
    std::string kind = draw(random, faulty ? fault_outcomes() : kFine);
    // A hang lasts until its deadline of 10 s, so three of four are replaced.
    if (kind == "hang" && random() % 4 != 0) kind = "sigkill";
    cases.push_back(fake_case(kind, 1 << (random() % 3)));
  }
  return cases;
}

// An event sink that keeps no event, so that only the driver can grow. It judges each case when it finishes, and
// samples the memory and the descriptors of this process.
class Watch : public EventSink {
 public:
  static constexpr std::size_t kSamples = 40;

  explicit Watch(std::size_t cases) : cases_(cases) {
    memory_kib.reserve(kSamples);
    descriptors.reserve(kSamples);
  }

  void on_event(const Event& event) override {
    if (const auto* finished = std::get_if<CaseFinished>(&event)) judge(*finished);
    const auto* retired = std::get_if<PoolRetired>(&event);
    if (retired != nullptr) leftovers += retired->leftovers.size();
  }

  std::vector<std::int64_t> memory_kib;
  std::vector<std::int64_t> descriptors;
  std::size_t leftovers = 0;
  std::size_t finished_cases = 0;

 private:
  void judge(const CaseFinished& finished) {
    const std::string& kind = test::attention(finished.payload).model;
    EXPECT_THAT(kFine.contains(kind) ? kFine.at(kind) : fault_outcomes().at(kind),
                Contains(std::string{to_string(finished.outcome)}))
        << "case " << finished.index << " " << kind << ": " << finished.reason;
    // Samples are taken at equal distances, the last one at the last case.
    if (++finished_cases * kSamples / cases_ == memory_kib.size()) return;
    memory_kib.push_back(allocated_kib());
    descriptors.push_back(static_cast<std::int64_t>(open_descriptors()));
  }

  std::size_t cases_;
};

TEST(Soak, KeepsExactBooksLeavesNothingBehindAndDoesNotGrow) {
  const int seed = from_environment("CP_POOL_SOAK_SEED", 1234);
  RecordProperty("seed", seed);
  const std::vector<Item> cases = draw_cases(from_environment("CP_POOL_SOAK_CASES", 5000), static_cast<unsigned>(seed));
  RunConfig config = fake_config();
  config.timeout = std::chrono::seconds(10);
  config.slots = 14;  // two pools of each size
  config.pool_max_cases = 40;
  const std::size_t descriptors = open_descriptors();
  Watch watch(cases.size());

  const RunFinished finished = run_cases(cases, config, {}, watch).finished;

  EXPECT_TRUE(finished.ledger_exact);
  EXPECT_EQ(finished.expanded, cases.size());
  EXPECT_EQ(watch.finished_cases, cases.size());
  EXPECT_EQ(watch.leftovers, 0U);
  EXPECT_THAT(processes_left(), IsEmpty());
  EXPECT_EQ(open_descriptors(), descriptors);
  ASSERT_EQ(watch.memory_kib.size(), Watch::kSamples);
  if (!kFreedMemoryIsKept) {
    EXPECT_LE(growth_after_warm_up(watch.memory_kib), 1024) << testing::PrintToString(watch.memory_kib);
  }
  // The number of pools that live when a sample is taken is chance: a pool of each size has 20 descriptors together.
  EXPECT_LE(growth_after_warm_up(watch.descriptors), 20) << testing::PrintToString(watch.descriptors);
  fmt::print("{} cases, {:.1f} s; memory {} KiB; descriptors {}\n", cases.size(), finished.duration_ms / 1e3,
             testing::PrintToString(watch.memory_kib), testing::PrintToString(watch.descriptors));
}

}  // namespace
}  // namespace cp_pool::driver_test
