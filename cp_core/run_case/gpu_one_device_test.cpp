// Runs whole cases on ranks that are threads of this process and share one GPU, with the kernels of the libraries and
// our own. So every communication type, a2a+p2p included, is tested with a single GPU and without NCCL.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "cases/case_json.h"
#include "cases/comm_facts.h"
#include "cp_core/attention/cuda_backends.h"
#include "cp_core/run_case/run_case.h"
#include "cp_core/testing/cases_on_threads.h"
#include "cp_core/testing/gpu_fixture.h"
#include "cp_core/testing/ranks_on_threads.h"

namespace cp_pool::verify {
namespace {

// Must be set before cuBLAS is first used, which gives the same bits again only with a workspace of fixed size.
[[maybe_unused]] const int kCublasWorkspace = setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);

// Long enough for a case under compute-sanitizer.
constexpr std::chrono::minutes kLongEnough{8};
// Tools that trace the device may fail if several threads launch kernels at once.
const bool kOneAtATime = std::getenv("CP_POOL_TEST_ONE_AT_A_TIME") != nullptr;
constexpr int kRanks = 4;
constexpr auto kCommTypes = kValues<CommType>;
constexpr std::array kLayouts{Layout::bshd, Layout::sbhd, Layout::thd};
constexpr std::array kBackends{Backend::cudnn, Backend::flash, Backend::math};

struct NamedCase {
  std::string name;
  Case c;
  bool windows = false;  // whether the communicators have windows
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const NamedCase& named, std::ostream* stream) {
  *stream << test::text_of(named.c);
}

std::string name_of_test(const testing::TestParamInfo<NamedCase>& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '+', '_');
  return name;
}

// In deterministic mode, so that the repeated step has to give the same bits.
Case causal_case(CommType comm, Backend backend, Layout layout) {
  Case c;
  c.comm = comm;
  c.backend = backend;
  c.layout = layout;
  c.cp_size = kRanks;
  c.seqlen_q = c.seqlen_kv = 1024;
  c.heads = 8;
  c.kv_heads = 4;
  c.head_dim_qk = c.head_dim_v = 64;
  c.causal = true;
  c.deterministic = true;
  if (layout == Layout::thd) {
    c.seqlens = {1001, 517, 40};
    c.batch = 3;
    c.pad_between_seqs = true;
  }
  return c;
}

NamedCase named(Case c, const std::string& what) {
  return {.name = fmt::format("{}_{}_{}", what, to_string(c.comm), to_string(c.backend)), .c = std::move(c)};
}

std::string text_of_check(const Check& check) {
  return fmt::format("{}: {} (worst row [{}]: error {:.3g}, bound {:.3g}, baseline {:.3g}; max_abs {:.3g}, rms {:.3g})",
                     check.tensor, check.message, fmt::join(check.worst_index, ", "), check.error, check.bound,
                     check.baseline, check.max_abs, check.rms);
}

void expect_pass(const RankReport& report, int rank) {
  EXPECT_EQ(report.outcome, CaseOutcome::pass) << "rank " << rank << ": " << report.reason;
  EXPECT_FALSE(report.checks.empty()) << "rank " << rank;
  for (const Check& check : report.checks) {
    if (!check.ok) ADD_FAILURE() << "rank " << rank << ": " << text_of_check(check);
  }
  for (const std::string& remark : report.remarks) fmt::print("[ remark   ] rank {}: {}\n", rank, remark);
}

enum class Streams { shared, own };

class GpuOneDevice : public GpuTest, public testing::WithParamInterface<NamedCase> {
 protected:
  static void expect_all_pass(const NamedCase& one, Streams streams = Streams::shared) {
    const Case& c = one.c;
    validate(c, "test");
    RunOptions options;
    options.device = at::Device(at::kCUDA, 0);
    // Cached references were made on another case's streams, so they are only used if cases share streams.
    options.reference_cache = streams == Streams::shared;
    reset_numeric_state(options.device);
    std::vector<RankReport> reports(static_cast<std::size_t>(c.cp_size));
    const auto run = [&](const CpGroups& groups, int rank) {
      linked_cuda_device().use_device(0);
      const c10::cuda::CUDAStreamGuard guard(streams == Streams::own ? c10::cuda::getStreamFromPool()
                                                                     : c10::cuda::getDefaultCUDAStream());
      reports[static_cast<std::size_t>(rank)] = run_case(c, groups, options);
    };
    run_ranks(c.cp_size, run, kLongEnough, {.device = options.device, .windows = one.windows}, kOneAtATime);
    for (int rank = 0; rank < c.cp_size; ++rank) expect_pass(reports[static_cast<std::size_t>(rank)], rank);
  }
};

TEST_P(GpuOneDevice, PassesOnEveryRank) {
  expect_all_pass(GetParam());
}

class GpuRehearsals : public GpuTest {};

// A rehearsal that fails in a worker is not reported, so it is tested here.
TEST_F(GpuRehearsals, PassOnThreadsOfTheirOwn) {
  const std::vector<Preparation> pieces = rehearsals(at::Device(at::kCUDA, 0));
  ASSERT_EQ(pieces.size(), 2U);
  std::vector<std::future<void>> threads;
  threads.reserve(pieces.size());
  for (const Preparation& piece : pieces) threads.push_back(std::async(std::launch::async, piece));
  for (std::future<void>& thread : threads) EXPECT_NO_THROW(thread.get());
}

// --- Types, layouts, backends ----------------------------------------------------------------------------------------

std::vector<NamedCase> types() {
  std::vector<NamedCase> cases;
  for (const CommType comm : kCommTypes) {
    for (const Layout layout : kLayouts) {
      for (const Backend backend : kBackends) {
        cases.push_back(named(causal_case(comm, backend, layout), std::string(to_string(layout))));
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Types, GpuOneDevice, testing::ValuesIn(types()), name_of_test);

// Small enough for tools under which each memory access takes a hundred times as long. They use the communication type
// that otherwise needs more than two GPUs.
std::vector<NamedCase> small_cases() {
  std::vector<NamedCase> cases;
  for (const Layout layout : kLayouts) {
    Case c = causal_case(CommType::a2a_p2p, Backend::flash, layout);
    c.seqlen_q = c.seqlen_kv = 256;
    c.heads = c.kv_heads = kRanks;
    if (layout == Layout::thd) c.seqlens = {250, 121, 10};
    cases.push_back(named(std::move(c), std::string(to_string(layout))));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Small, GpuOneDevice, testing::ValuesIn(small_cases()), name_of_test);

// --- Windows ---------------------------------------------------------------------------------------------------------

std::vector<NamedCase> with_windows(
    std::vector<NamedCase> cases, bool (*which)(const Case&) = [](const Case& c) { return c.comm != CommType::p2p; }) {
  std::erase_if(cases, [&](const NamedCase& one) { return !which(one.c); });
  for (NamedCase& one : cases) one.windows = true;
  return cases;
}

std::vector<NamedCase> window_cases() {
  std::vector<NamedCase> cases;
  for (const CommType comm : kCommTypes) {
    for (const Layout layout : kLayouts) {
      cases.push_back(named(causal_case(comm, Backend::cudnn, layout), std::string(to_string(layout))));
    }
    cases.push_back(named(causal_case(comm, Backend::flash, Layout::thd), "thd"));
  }
  return with_windows(std::move(cases));
}

INSTANTIATE_TEST_SUITE_P(Windows, GpuOneDevice, testing::ValuesIn(window_cases()), name_of_test);

// --- Features --------------------------------------------------------------------------------------------------------

struct Feature {
  const char* name;
  Layout layout;
  bool flash;  // FlashAttention has it
  void (*add)(Case&);
};

void add_bias(Case& c, BiasShape shape) {
  c.bias = shape;
  c.seqlen_q = c.seqlen_kv = 512;
  c.deterministic = false;
}

constexpr std::array kFeatures{
    Feature{"window", Layout::thd, true, [](Case& c) { c.window = {100, 0}; }},
    Feature{"bottom_right", Layout::sbhd, true, [](Case& c) { c.seqlen_q = 512; }},
    Feature{"bottom_right_of_sequences", Layout::thd, true,
            [](Case& c) {
              c.seqlens = {517, 301, 40};
              c.seqlens_kv = {1001, 517, 40};
            }},
    Feature{"sink", Layout::thd, true, [](Case& c) { c.softmax = SoftmaxType::learnable; }},
    Feature{"off_by_one", Layout::bshd, true, [](Case& c) { c.softmax = SoftmaxType::off_by_one; }},
    Feature{"max_logit", Layout::sbhd, true, [](Case& c) { c.max_logit = true; }},
    Feature{"bias_of_heads", Layout::bshd, false, [](Case& c) { add_bias(c, BiasShape::shape_1hss); }},
    Feature{"bias_of_sequences", Layout::bshd, false, [](Case& c) { add_bias(c, BiasShape::shape_b1ss); }},
    Feature{"mla", Layout::bshd, true,
            [](Case& c) {
              c.heads = 4;
              c.head_dim_qk = 192;
              c.head_dim_v = 128;
              c.deterministic = false;
            }},
};

std::vector<NamedCase> features() {
  std::vector<NamedCase> cases;
  for (const Feature& feature : kFeatures) {
    for (const CommType comm : kCommTypes) {
      for (const Backend backend : {Backend::cudnn, Backend::flash}) {
        if (backend == Backend::flash && !feature.flash) continue;
        Case c = causal_case(comm, backend, feature.layout);
        feature.add(c);
        cases.push_back(named(std::move(c), feature.name));
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Features, GpuOneDevice, testing::ValuesIn(features()), name_of_test);

// --- Numbers of ranks ------------------------------------------------------------------------------------------------

std::vector<NamedCase> ranks() {
  std::vector<NamedCase> cases;
  for (const int ranks : {2, 8}) {
    for (const CommType comm : kCommTypes) {
      // Some types need pairs of ranks, or a head for each rank.
      if (!facts_of(comm).takes_size({ranks})) continue;
      for (Case c : {causal_case(comm, Backend::cudnn, Layout::bshd), causal_case(comm, Backend::flash, Layout::thd)}) {
        c.cp_size = ranks;
        cases.push_back(named(std::move(c), fmt::format("{}_ranks", ranks)));
      }
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuOneDevice, testing::ValuesIn(ranks()), name_of_test);

// --- Heads in groups -------------------------------------------------------------------------------------------------

class GpuOneDeviceHeadGroups : public GpuOneDevice {};

// Returns into how many groups cuDNN divides the heads of one call: of a rank's own step, or of a2a.
std::int64_t groups_of(const Case& c) {
  const std::int64_t tokens = c.batch * c.seqlen_q;
  const std::int64_t sharing = head_ranks(c);
  const auto backend = make_cuda_backend(c.backend);
  return backend->pipeline_groups(
      {.q_rows = tokens / (c.cp_size / sharing), .heads = c.heads / sharing, .kv_heads = c.kv_heads / sharing});
}

TEST_P(GpuOneDeviceHeadGroups, PassOnEveryRank) {
  ASSERT_GT(groups_of(GetParam().c), 1) << "heads are not split";
  expect_all_pass(GetParam());
}

// Cases with enough rows that cuDNN computes heads in groups, in a2a and in a rank's own step.
std::vector<NamedCase> long_cases() {
  std::vector<NamedCase> cases;
  for (const CommType comm : kCommTypes) {
    Case c = causal_case(comm, Backend::cudnn, Layout::bshd);
    c.seqlen_q = c.seqlen_kv = 8192;
    c.heads = 32;
    c.kv_heads = 16;
    cases.push_back(named(std::move(c), "long"));
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Long, GpuOneDeviceHeadGroups, testing::ValuesIn(long_cases()), name_of_test);
// Only a2a, in which the columns of all groups of heads arrive in one tensor.
INSTANTIATE_TEST_SUITE_P(LongWindows, GpuOneDeviceHeadGroups,
                         testing::ValuesIn(with_windows(long_cases(),
                                                        [](const Case& c) { return c.comm == CommType::a2a; })),
                         name_of_test);

// --- Streams ---------------------------------------------------------------------------------------------------------

class GpuOneDeviceStreams : public GpuOneDevice {};

TEST_P(GpuOneDeviceStreams, OfTheirOwnPassOnEveryRank) {
  expect_all_pass(GetParam(), Streams::own);
}

std::vector<NamedCase> stream_cases() {
  std::vector<NamedCase> cases;
  for (const CommType comm : kCommTypes) {
    for (const Backend backend : {Backend::cudnn, Backend::flash}) {
      cases.push_back(named(causal_case(comm, backend, Layout::thd), "thd"));
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuOneDeviceStreams, testing::ValuesIn(stream_cases()), name_of_test);
INSTANTIATE_TEST_SUITE_P(Windows, GpuOneDeviceStreams,
                         testing::ValuesIn(with_windows(stream_cases(),
                                                        [](const Case& c) {
                                                          return c.comm != CommType::p2p && c.backend == Backend::cudnn;
                                                        })),
                         name_of_test);

}  // namespace
}  // namespace cp_pool::verify
