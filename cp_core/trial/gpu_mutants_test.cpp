// The deliberate faults of mutants.def that GPU ranks can have. Those that leave out a wait are caught by random
// delays: a step with the fault gives other bits than one without, or dies. The others are caught by run_case, with the
// math backend, which has the seams of attention.
#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/mutation.h"
#include "cp_core/own/rank_step.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/gpu_step.h"
#include "cp_core/verify/output_hash.h"

namespace cp_pool::verify {
namespace {

using cp_pool::test::gpu_ranks_for;
using cp_pool::test::GpuStep;
using std::chrono::seconds;

constexpr seconds kLongEnough{240};

const MutantInfo& info_of(Mutant mutant) {
  return *std::ranges::find(all_mutants(), mutant, &MutantInfo::mutant);
}

// The largest over the ranks.
std::int64_t largest_of_ranks(const CpGroups& groups, std::int64_t value) {
  at::Tensor largest =
      at::full({1}, value, at::TensorOptions(at::kLong).device(at::kCUDA, c10::cuda::current_device()));
  groups.cp->all_reduce(largest, ReduceOp::max, "largest of ranks")->wait();
  groups.cp->synchronize("largest of ranks");
  return largest.item<std::int64_t>();
}

// --- Waits -----------------------------------------------------------------------------------------------------------

struct WaitMutant {
  Mutant mutant;
  CommType comm;
  Backend backend = Backend::flash;  // whose calls add to sums; those of cuDNN do not
};

constexpr std::array kWaitMutants{
    WaitMutant{Mutant::second_stream_wait_skipped, CommType::all_gather},
    WaitMutant{Mutant::join_wait_skipped, CommType::all_gather},
    WaitMutant{Mutant::streams_swapped, CommType::all_gather},
    WaitMutant{Mutant::mark_not_recorded, CommType::all_gather},
    WaitMutant{Mutant::mark_wait_skipped, CommType::all_gather},
    WaitMutant{Mutant::max_logit_before_join, CommType::all_gather},
    WaitMutant{Mutant::all_gather_wait_skipped, CommType::all_gather},
    WaitMutant{Mutant::all_gather_dkv_wait_skipped, CommType::all_gather},
    WaitMutant{Mutant::p2p_wait_skipped, CommType::p2p},
    WaitMutant{Mutant::dkv_wait_skipped, CommType::p2p},
    WaitMutant{Mutant::a2a_wait_skipped, CommType::a2a},
    WaitMutant{Mutant::join_wait_skipped, CommType::all_gather, Backend::cudnn},
    WaitMutant{Mutant::mark_wait_skipped, CommType::all_gather, Backend::cudnn},
    WaitMutant{Mutant::other_stream_wait_skipped, CommType::all_gather, Backend::cudnn},
};

bool leaves_out_a_wait(Mutant mutant) {
  return std::ranges::any_of(kWaitMutants, [mutant](const WaitMutant& wait) { return wait.mutant == mutant; });
}

class GpuWaitMutants : public testing::TestWithParam<WaitMutant> {};

// The device rests after each pass: memory that a fault frees too early must not become that of another tensor.
std::string hash_under_delays(const GpuStep& step, std::uint64_t seed) {
  constexpr std::uint64_t kMostMicroseconds = 3000;
  cuda_device().set_stream_delays({.seed = seed, .most_microseconds = kMostMicroseconds});
  const AttentionForward forward = step.forward();
  c10::cuda::device_synchronize();
  const AttentionGradients gradients = step.backward(forward);
  c10::cuda::device_synchronize();
  cuda_device().set_stream_delays({});
  return hash_of(results_of(forward, gradients));
}

constexpr int kSeeds = 40;      // of a round
constexpr int kMostRounds = 5;  // some waits are long over before they are skipped, but for a seed in tens

// A step, and one like it with other numbers: these are in the memory that a skipped wait reads too early.
struct Steps {
  GpuStep step;
  GpuStep other;
};

int count_different(const Steps& steps, const std::string& expected, int round) {
  int different = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    (void)steps.other.hash();
    const std::string hash = hash_under_delays(steps.step, static_cast<std::uint64_t>(round * kSeeds + seed));
    different += hash == expected ? 0 : 1;
  }
  return different;
}

// What a kernel died of may come to light in the destructor of a tensor, which ends the process.
class EndingAllRanks {
 public:
  EndingAllRanks() : before_(std::set_terminate(end)) {}
  EndingAllRanks(const EndingAllRanks&) = delete;
  EndingAllRanks& operator=(const EndingAllRanks&) = delete;
  ~EndingAllRanks() { std::set_terminate(before_); }

 private:
  [[noreturn]] static void end() {
    fmt::print("[ mutant   ] a destructor threw\n");
    end_all_ranks();
  }

  std::terminate_handler before_;
};

// The same with the mutant. Without a wait a kernel may also read offsets that are not there yet, and die of them: that
// shows the mutant too, and is the end of this rank's GPU.
int count_different_with(const MutantInfo& mutant, int rank, const Steps& steps, const std::string& expected,
                         int round) {
  try {
    const EndingAllRanks on_terminate;
    const ScopedMutant on(mutant.mutant);
    return count_different(steps, expected, round);
  } catch (const std::exception& error) {
    fmt::print("[ mutant   ] {} on rank {}: {}\n", mutant.name, rank, error.what());
    end_all_ranks();
  }
}

TEST_P(GpuWaitMutants, ShowUnderDelays) {
  const auto [mutant, comm, backend] = GetParam();
  const int ranks = gpu_ranks_for(comm);
  require_gpus(1, count_gpus());
  if (IsSkipped() || HasFatalFailure()) return;
  on_gpu_ranks(ranks, [mutant = mutant, comm = comm, backend = backend](const GpuRank& rank) {
    const at::NoGradGuard no_grad;
    const CpGroups groups = rank.connect();
    groups.cp->set_deadline(Communicator::Clock::now() + kLongEnough);
    Case c = cp_pool::test::gpu_thd_case(comm, backend, rank.size, {1021, 517, 40, 2040});
    c.max_logit = true;
    Case of_other_numbers = c;
    ++of_other_numbers.seed;
    const Steps steps{.step = {c, rank, groups}, .other = {of_other_numbers, rank, groups}};
    const std::string expected = steps.step.hash();
    EXPECT_EQ(count_different(steps, expected, 0), 0) << "rank " << rank.rank << ", without the mutant";
    int different = 0;
    std::int64_t most = 0;
    int rounds = 0;
    for (; rounds < kMostRounds && most == 0; ++rounds) {
      different = count_different_with(info_of(mutant), rank.rank, steps, expected, rounds);
      most = largest_of_ranks(groups, different);
    }
    EXPECT_GT(most, 0) << info_of(mutant).name << " survived: " << info_of(mutant).description;
    fmt::print("[ mutant   ] {} on rank {}: {} of {} runs give other bits\n", info_of(mutant).name, rank.rank,
               different, rounds * kSeeds);
  });
}

INSTANTIATE_TEST_SUITE_P(Waits, GpuWaitMutants, testing::ValuesIn(kWaitMutants), [](const auto& info) {
  return fmt::format("{}_{}_{}", info_of(info.param.mutant).name, to_string(info.param.comm),
                     to_string(info.param.backend));
});

TEST(GpuMutants, OfStreamsAreAllTried) {
  for (const MutantInfo& info : all_mutants()) {
    EXPECT_TRUE(info.where != MutantWhere::gpu || leaves_out_a_wait(info.mutant)) << info.name;
  }
}

// --- Everything else -------------------------------------------------------------------------------------------------

constexpr int kRanks = 4;     // of two, each is both before and behind the other
constexpr int kOddRanks = 3;  // of a mutant that only odd rings show

bool needs_an_odd_ring(Mutant mutant) {
  return mutant == Mutant::odd_ring_order;
}

// What random cases seldom are: see mutants_test.cpp.
std::vector<Case> rare_cases() {
  Case start = test::small_case();
  start.cp_size = kRanks;
  start.seqlen_q = start.seqlen_kv = 64;
  Case right_window = start;
  right_window.window = {kInfiniteWindow, 1};
  Case fewer_keys = start;
  fewer_keys.window = {kInfiniteWindow, 2};
  fewer_keys.seqlen_kv = 56;
  Case one_key = test::one_key_case();
  one_key.cp_size = kRanks;
  one_key.seqlen_q = one_key.seqlen_kv = start.seqlen_q;
  return {right_window, fewer_keys, one_key};
}

std::vector<Case> witness_cases(const at::Device& device, int ranks) {
  std::vector<Case> cases;
  if (ranks == kRanks) cases = rare_cases();
  std::mt19937_64 generator(7);
  while (cases.size() < 120) {
    Case c = test::random_case(generator);
    c.training = true;
    c.backend = Backend::math;
    c.group = 1;
    if (c.cp_size == ranks && skip_reason(c, device).empty()) cases.push_back(c);
  }
  return cases;
}

// Cases run on all ranks, which learn together whether one of them found a fault.
class Witnesses {
 public:
  explicit Witnesses(const CpGroups& groups)
      : groups_(groups),
        device_(at::kCUDA, c10::cuda::current_device()),
        cases_(witness_cases(device_, groups.cp->size())) {}

  // How many cases it took; nullopt if none fails.
  std::optional<std::size_t> first_failing() {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (fails(cases_[i])) return i + 1;
    }
    return std::nullopt;
  }

  // Does the case that failed pass without a mutant?
  bool passes(std::size_t number) { return !fails(cases_[number - 1]); }

  // What this rank found last, empty if nothing.
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  bool fails(const Case& c) {
    groups_.cp->set_deadline(Communicator::Clock::now() + kLongEnough);
    reset_numeric_state(device_);
    RunOptions options;
    options.device = device_;
    const RankReport report = run_case(c, groups_, options);
    found_ = report.reason;
    return largest_of_ranks(groups_, report.outcome == CaseOutcome::fail ? 1 : 0) > 0;
  }

  const CpGroups& groups_;
  at::Device device_;
  std::vector<Case> cases_;
  std::string found_;
};

void kill(const MutantInfo& info, Witnesses& witnesses, int rank) {
  std::optional<std::size_t> killed;
  std::string found;
  {
    const ScopedMutant on(info.mutant);
    killed = witnesses.first_failing();
    found = witnesses.found();
  }
  ASSERT_TRUE(killed) << info.name << " survived: " << info.description;
  if (!found.empty()) fmt::print("[ mutant   ] {} on rank {} after {} cases: {}\n", info.name, rank, *killed, found);
  EXPECT_TRUE(witnesses.passes(*killed)) << "case " << *killed << " fails without " << info.name
                                         << ", too: " << witnesses.found();
}

// In parts, since ranks may take a minute.
constexpr std::size_t kParts = 4;

class GpuMutantParts : public testing::TestWithParam<std::size_t> {};

TEST_P(GpuMutantParts, AreCaughtByRunCase) {
  require_gpus(1, count_gpus());
  if (IsSkipped() || HasFatalFailure()) return;
  on_gpu_ranks(kRanks, [](const GpuRank& rank) {
    const at::NoGradGuard no_grad;
    const CpGroups groups = rank.connect();
    Witnesses witnesses(groups);
    const auto mutants = all_mutants();
    for (std::size_t i = GetParam(); i < mutants.size(); i += kParts) {
      if (mutants[i].where != MutantWhere::both || leaves_out_a_wait(mutants[i].mutant)) continue;
      if (needs_an_odd_ring(mutants[i].mutant)) continue;
      kill(mutants[i], witnesses, rank.rank);
    }
  });
}

TEST(GpuMutants, OfOddRingsAreCaughtByRunCase) {
  require_gpus(1, count_gpus());
  if (IsSkipped() || HasFatalFailure()) return;
  on_gpu_ranks(kOddRanks, [](const GpuRank& rank) {
    const at::NoGradGuard no_grad;
    const CpGroups groups = rank.connect();
    Witnesses witnesses(groups);
    for (const MutantInfo& info : all_mutants()) {
      if (needs_an_odd_ring(info.mutant)) kill(info, witnesses, rank.rank);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Parts, GpuMutantParts, testing::Range(std::size_t{0}, kParts));

}  // namespace
}  // namespace cp_pool::verify
