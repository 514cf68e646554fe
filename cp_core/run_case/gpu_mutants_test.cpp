// Tests the deliberate faults of mutants.def that GPU ranks can have. A fault that leaves out a wait is caught with
// random delays: a step with the fault gives other bits than one without, or crashes. The others are caught by run_case
// with the math backend, in which all seams of attention can be made faulty.
#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cp_core/builtin/builtin_implementation.h"
#include "cp_core/mutation.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/gpu_step.h"
#include "cp_core/testing/witness_cases.h"
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

// --- Waits -----------------------------------------------------------------------------------------------------------

struct WaitMutant {
  Mutant mutant;
  CommType comm;
  Backend backend = Backend::flash;  // its calls add to sums, while those of cuDNN do not
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

// Runs a step under random delays. Synchronises the device after each pass, so that memory which a fault frees too
// early is not given to another tensor.
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

constexpr int kSeeds = 40;      // per round
constexpr int kMostRounds = 5;  // a skipped wait may only matter for one seed in tens

// A step and a similar one with other numbers. A skipped wait reads the other step's numbers if it reads memory too
// early.
struct Steps {
  GpuStep step;
  GpuStep other;
};

int count_different(const Steps& steps, const std::string& expected, int round) {
  int different = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    (void)steps.other.hash();
    const std::string hash =
        hash_under_delays(steps.step, static_cast<std::uint64_t>(round) * kSeeds + static_cast<std::uint64_t>(seed));
    different += hash == expected ? 0 : 1;
  }
  return different;
}

// Ends all ranks on std::terminate: the error of a crashed kernel may be thrown in the destructor of a tensor.
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

// The same with the mutant. Without a wait, a kernel may also read offsets that are not written yet, and crash. That
// shows the mutant too, but this rank cannot use its GPU any more.
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
    int most = 0;
    int rounds = 0;
    for (; rounds < kMostRounds && most == 0; ++rounds) {
      different = count_different_with(info_of(mutant), rank.rank, steps, expected, rounds);
      most = largest_anywhere(different, *groups.cp, {at::kCUDA, c10::cuda::current_device()}, "most different runs");
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

constexpr int kRanks = 4;     // with two, each rank's next and previous rank are the same
constexpr int kOddRanks = 3;  // for a mutant that only shows in odd rings

bool needs_an_odd_ring(Mutant mutant) {
  return mutant == Mutant::odd_ring_order;
}

std::vector<Case> witness_cases(const at::Device& device, int ranks) {
  std::vector<Case> cases;
  if (ranks == kRanks) cases = test::rare_cases();
  for (Case& c : cases) {
    c.cp_size = kRanks;
    c.backend = Backend::math;
  }
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

// Runs cases on all ranks. All ranks get the same answer on whether any of them found a fault.
class Witnesses {
 public:
  explicit Witnesses(const CpGroups& groups)
      : groups_(groups),
        device_(at::kCUDA, c10::cuda::current_device()),
        cases_(witness_cases(device_, groups.cp->size())) {}

  // Runs cases until one fails. Returns how many cases ran; nullopt if none fails.
  std::optional<std::size_t> first_failing() {
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      if (fails(cases_[i])) return i + 1;
    }
    return std::nullopt;
  }

  // Whether case `number`, counted from 1, passes. Is called without a mutant.
  bool passes(std::size_t number) { return !fails(cases_[number - 1]); }

  // The last fault that this rank found; empty if none.
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  bool fails(const Case& c) {
    groups_.cp->set_deadline(Communicator::Clock::now() + kLongEnough);
    reset_numeric_state(device_);
    RunOptions options;
    options.device = device_;
    const RankReport report = run_case(c, groups_, options);
    found_ = report.reason;
    return anywhere(report.outcome == CaseOutcome::fail, *groups_.cp, device_, "verdicts");
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

// The mutants are tested in parts, since ranks are killed after some minutes.
constexpr std::size_t kParts = 4;

class GpuMutantParts : public testing::TestWithParam<std::size_t> {};

// Kills every `step`th of the mutants from `first` on of which the condition holds.
void kill_on_gpus(int ranks, std::size_t first, std::size_t step, const std::function<bool(const MutantInfo&)>& of) {
  require_gpus(1, count_gpus());
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  on_gpu_ranks(ranks, [&](const GpuRank& rank) {
    const at::NoGradGuard no_grad;
    const CpGroups groups = rank.connect();
    Witnesses witnesses(groups);
    const auto mutants = all_mutants();
    for (std::size_t i = first; i < mutants.size(); i += step) {
      if (of(mutants[i])) kill(mutants[i], witnesses, rank.rank);
    }
  });
}

TEST_P(GpuMutantParts, AreCaughtByRunCase) {
  kill_on_gpus(kRanks, GetParam(), kParts, [](const MutantInfo& info) {
    return info.where == MutantWhere::both && !leaves_out_a_wait(info.mutant) && !needs_an_odd_ring(info.mutant);
  });
}

TEST(GpuMutants, OfOddRingsAreCaughtByRunCase) {
  kill_on_gpus(kOddRanks, 0, 1, [](const MutantInfo& info) { return needs_an_odd_ring(info.mutant); });
}

INSTANTIATE_TEST_SUITE_P(Parts, GpuMutantParts, testing::Range(std::size_t{0}, kParts));

}  // namespace
}  // namespace cp_pool::verify
