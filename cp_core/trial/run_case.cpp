#include "cp_core/trial/run_case.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <ranges>
#include <stdexcept>
#include <utility>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include "cases/backend_facts.h"
#include "cases/case_id.h"
#include "cases/case_names.h"
#include "cases/case_phases.h"
#include "cases/lengths.h"
#include "cp_core/comm/local/local_communicator.h"
#include "cp_core/cuda/device.h"
#include "cp_core/file_error.h"
#include "cp_core/trial/dump.h"
#include "cp_core/trial/memory_need.h"
#include "cp_core/trial/rank_step.h"
#include "cp_core/verify/check.h"
#include "cp_core/verify/check_outputs.h"
#include "cp_core/verify/expected_cache.h"
#include "cp_core/verify/head_shares.h"
#include "cp_core/verify/mask_probe.h"
#include "cp_core/verify/output_hash.h"

namespace cp_pool {
namespace {

using verify::Expected;
using verify::RankView;
using verify::Results;
using verify::Shards;

constexpr std::size_t kCacheBytesCpu = std::size_t{512} << 20U;
constexpr std::size_t kCacheBytesCuda = std::size_t{16} << 30U;  // at most
constexpr std::size_t kCacheShareCuda = 8;  // and at most this fraction, 1 / 8, of the device's memory

std::size_t cache_bytes(const at::Device& device, int ranks_on_gpu) {
  if (!device.is_cuda()) return kCacheBytesCpu;
  const std::size_t share = std::min(kCacheBytesCuda, cuda_device().memory().device_bytes / kCacheShareCuda);
  return share / static_cast<std::size_t>(ranks_on_gpu);
}

// One cache for each rank of the process: workers have one rank and one device, tests have ranks that are threads.
verify::ExpectedCache& cache_of(int rank, const at::Device& device, int ranks_on_gpu) {
  static std::mutex mutex;
  static std::map<int, verify::ExpectedCache> caches;
  const std::lock_guard lock(mutex);
  const auto found = caches.find(rank);
  if (found != caches.end()) return found->second;
  return caches.try_emplace(rank, cache_bytes(device, ranks_on_gpu)).first->second;
}

// Whether `here` is true on any rank; all ranks get the same answer.
bool anywhere(bool here, Communicator& cp, const at::Device& device, const char* what) {
  at::Tensor flag = at::full({1}, here ? 1 : 0, at::TensorOptions(device).dtype(at::kInt));
  cp.all_reduce(flag, ReduceOp::max, what)->wait();
  cp.synchronize(what);
  return flag.item<int>() != 0;
}

// Ranks compute the expected results together. If one rank has them in its cache and another has not, because a case
// ended half way, all compute them again.
std::shared_ptr<const Expected> expected_of(const verify::CanonicalProblem& problem,
                                            const verify::CanonicalInputs& inputs, Communicator& cp,
                                            const RunOptions& options) {
  const at::Device device = inputs.q.device();
  if (!options.reference_cache)
    return std::make_shared<const Expected>(verify::compute_expected_together(problem, inputs, cp));
  verify::ExpectedCache& cache = cache_of(cp.rank(), device, options.ranks_on_gpu);
  auto expected = cache.find(problem);
  if (!anywhere(expected == nullptr, cp, device, "whether expected results are cached")) return expected;
  expected = std::make_shared<const Expected>(verify::compute_expected_together(problem, inputs, cp));
  cache.keep(problem, expected);
  return expected;
}

// Ranks that share a GPU all take their part of a case at once.
class SharedMemory {
 public:
  SharedMemory(const verify::CanonicalProblem& problem, Communicator& cp, const RunOptions& options)
      : cp_(cp),
        options_(options),
        need_(verify::estimated_device_bytes(problem, cp.size()) * static_cast<std::size_t>(options.ranks_on_gpu)) {}

  // Why the case needs more memory than there is, as a sentence; empty if it fits. Cached results of earlier cases are
  // dropped if they are in the way. The same answer on every rank.
  std::string what_does_not_fit() {
    if (fits()) return {};
    cache_of(cp_.rank(), options_.device, options_.ranks_on_gpu).clear();
    cp_.checked_barrier(kBarrierTag, std::chrono::seconds(10));  // closes what other ranks have open of it
    cuda_device().release_cached_memory();
    if (fits()) return {};
    if (need_ <= free_) return "the ranks of another GPU need more memory than is free there";
    constexpr double kGiB = 1U << 30U;
    return fmt::format("{} ranks that share a GPU need about {:.1f} GiB of it together, and {:.1f} GiB are free",
                       options_.ranks_on_gpu, static_cast<double>(need_) / kGiB, static_cast<double>(free_) / kGiB);
  }

 private:
  static constexpr std::int64_t kBarrierTag = -2;  // no case has this seq

  bool fits() {
    // When all have come here, all have given back what they had cached; and none goes on before all have looked.
    (void)anywhere(false, cp_, options_.device, "memory of ranks that share a GPU");
    free_ = cuda_device().memory().free_bytes;
    return !anywhere(need_ > free_, cp_, options_.device, "whether the case fits");
  }

  Communicator& cp_;
  const RunOptions& options_;
  std::size_t need_;
  std::size_t free_ = 0;
};

class CaseRun {
 public:
  CaseRun(const Case& c, const CpGroups& groups, const RunOptions& options)
      : case_(c),
        groups_(groups),
        options_(options),
        lengths_(resolve_lengths(c)),
        view_(c, lengths_, groups.cp->rank(), groups.cp->size(), options.device) {}

  // Each part communicates first and judges afterwards, and no rank skips a part because of its own result. So a failed
  // check leaves no other rank waiting.
  RankReport run() {
    check_results();
    timed(case_phase::kProbe, [&] { probe_mask(); });
    const auto failed = std::ranges::find(report_.checks, false, &Check::ok);
    if (failed != report_.checks.end()) {
      report_.outcome = CaseOutcome::fail;
      report_.reason = fmt::format("{}: {}", failed->tensor, failed->message);
    }
    if (options_.perf && all_passed()) take_times(*options_.perf);
    return std::move(report_);
  }

 private:
  void check_results() {
    const auto canonical = verify::canonical_problem(case_, lengths_);
    verify::CanonicalInputs inputs;
    Shards shards;
    timed(case_phase::kInputs, [&] {
      inputs = verify::make_inputs(canonical, options_.device);
      shards = verify::make_shards(case_, inputs, view_);
    });
    const AttentionProblem problem = problem_of(case_);
    AttentionForward forward_result;
    AttentionGradients gradients;
    timed(case_phase::kForward, [&] { forward_result = forward(problem, shards); });
    if (case_.training) {
      timed(case_phase::kBackward, [&] { gradients = backward(problem, shards, forward_result); });
    }
    Results results = results_of(forward_result, gradients);
    Results again;
    timed(case_phase::kRepeat, [&] { again = step(case_, shards); });
    show_results(results, /*repeated=*/false);
    show_results(again, /*repeated=*/true);

    std::shared_ptr<const Expected> expected;
    timed(case_phase::kReference, [&] { expected = expected_of(canonical, inputs, *groups_.cp, options_); });
    timed(case_phase::kCompare, [&] {
      add(verify::check_outputs(case_, *expected, view_, results));
      report_.output_hash = verify::hash_of(results);
      check_repeat(*expected, results, again);
    });
    if (options_.dump_dir) {
      const std::string id = options_.id.empty() ? case_id(case_) : options_.id;
      timed(case_phase::kDump, [&] {
        try {
          dump_case(*options_.dump_dir, id, case_, lengths_, inputs, results, *groups_.cp);
        } catch (const FileError& e) {
          report_.lost_outputs.push_back({"dump", e.what()});
        }
      });
    }
  }

  void show_results(Results& results, bool repeated) const {
    if (!options_.on_result) return;
    for (const auto& [name, result] : verify::kResults) {
      if ((results.*result).defined()) options_.on_result(name, repeated, results.*result);
    }
  }

  // The same step gives the same bits. Where the backward does not promise that (promises_bits), the repeated gradients
  // are held against their bounds.
  void check_repeat(const Expected& expected, const Results& results, const Results& again) {
    const bool bitwise = promises_bits(case_, options_.device.is_cuda());
    const auto forward_bits = [](const Results& of) {
      Results forward;
      forward.out = of.out;
      forward.lse = of.lse;
      forward.max_logit = of.max_logit;
      return verify::hash_of(forward);
    };
    const bool same =
        bitwise ? verify::hash_of(again) == report_.output_hash : forward_bits(again) == forward_bits(results);
    if (!same) report_.checks.push_back(verify::failed_check("repeat", "the same step again gave other bits"));
    if (bitwise) return;
    for (Check& check : verify::check_gradients(case_, expected, view_, again)) {
      if (check.ok) continue;
      check.tensor = "repeated " + check.tensor;
      report_.checks.push_back(std::move(check));
    }
  }

  // The same answer on every rank.
  bool all_passed() {
    const bool failed = report_.outcome == CaseOutcome::fail;
    return !anywhere(failed, *groups_.cp, options_.device, "verdicts before the timed steps");
  }

  void take_times(const PerfOptions& perf) {
    StepTimes& times = report_.perf.emplace();
    timed(case_phase::kTimed, [&] { time_case(case_, lengths_, groups_, perf, options_.device, times); });
    timed(case_phase::kTimedAlone, [&] { time_one_rank(case_, lengths_, groups_, perf, options_.device, times); });
    if (!times.trace_error.empty()) report_.lost_outputs.push_back({"trace", times.trace_error});
  }

  void probe_mask() {
    const Case c = verify::mask_probe_case(case_);
    const auto probe = verify::make_mask_probe(verify::canonical_problem(c, lengths_), options_.device);
    const Results results = step(c, verify::make_shards(c, probe.inputs, view_));
    add(verify::check_mask_probe(c, probe.expected, view_, results));
  }

  // The problem of the steps, verified and timed: a step that will be replayed as a graph is verified in that form.
  AttentionProblem problem_of(const Case& c) const {
    AttentionProblem problem = make_problem(c, lengths_);
    problem.replayed = options_.perf && options_.perf->graph;
    return problem;
  }

  Results step(const Case& c, const Shards& shards) {
    const AttentionProblem problem = problem_of(c);
    const AttentionForward forward_result = forward(problem, shards);
    AttentionGradients gradients;
    if (c.training) gradients = backward(problem, shards, forward_result);
    return results_of(forward_result, gradients);
  }

  AttentionForward forward(const AttentionProblem& problem, const Shards& shards) {
    AttentionForward result = context_parallel_forward(problem, groups_, attention_inputs(shards));
    report_.remarks.insert(result.remarks.begin(), result.remarks.end());
    return result;
  }

  AttentionGradients backward(const AttentionProblem& problem, const Shards& shards, const AttentionForward& forward) {
    AttentionGradients result =
        context_parallel_backward(problem, groups_, attention_inputs(shards), forward, shards.dout);
    report_.remarks.insert(result.remarks.begin(), result.remarks.end());
    return result;
  }

  void add(std::vector<Check> checks) { std::ranges::move(checks, std::back_inserter(report_.checks)); }

  // Times a phase, and tells the caller as it starts.
  template <typename Body>
  void timed(const char* name, Body&& body) {
    using std::chrono::steady_clock;
    if (options_.on_phase) options_.on_phase(name);
    const auto start = steady_clock::now();
    body();
    groups_.cp->synchronize(name);  // errors and hangs of the device are reported here
    report_.timings_ms[name] = std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
  }

  const Case& case_;
  const CpGroups& groups_;
  const RunOptions& options_;
  SequenceLengths lengths_;
  RankView view_;
  RankReport report_;
};

}  // namespace

RankReport run_case(const Case& c, const CpGroups& groups, const RunOptions& options) {
  const auto skip = [](std::string reason) {
    RankReport report;
    report.outcome = CaseOutcome::skip;
    report.reason = std::move(reason);
    return report;
  };
  if (std::string reason = skip_reason(c, options.device); !reason.empty()) return skip(std::move(reason));
  const at::NoGradGuard no_grad;
  if (options.shares_gpus) {
    const auto problem = verify::canonical_problem(c, resolve_lengths(c));
    std::string reason = SharedMemory(problem, *groups.cp, options).what_does_not_fit();
    if (!reason.empty()) return skip(std::move(reason));
  }
  at::globalContext().setDeterministicAlgorithms(c.deterministic, /*warn_only=*/false);
  return CaseRun(c, groups, options).run();
}

void rehearse_case(const Case& c, const at::Device& device) {
  const at::NoGradGuard no_grad;
  if (device.is_cuda()) cuda_device().use_device(device.index());
  const CpGroups alone = make_local_groups(1, {.device = device}).front();
  RunOptions options;
  options.device = device;
  options.reference_cache = false;
  const RankReport report = CaseRun(c, alone, options).run();
  if (report.outcome != CaseOutcome::pass) {
    throw std::runtime_error(fmt::format("{}: {}", case_id(c), report.reason));
  }
}

std::vector<Preparation> rehearsals(const at::Device& device) {
  std::vector<Preparation> pieces;
  if (!device.is_cuda()) return pieces;
  // Libraries take longest, and stand behind math.
  for (const Backend backend : kValues<Backend> | std::views::reverse) {
    if (!facts_of(backend).rehearsed) continue;
    Case c;
    c.backend = backend;
    c.cp_size = 1;
    c.batch = 1;
    c.seqlen_q = c.seqlen_kv = 128;
    c.heads = c.kv_heads = 1;
    c.head_dim_qk = c.head_dim_v = 128;
    c.dtype = DType::bf16;
    c.causal = true;
    pieces.emplace_back([c, device] { rehearse_case(c, device); });
  }
  return pieces;
}

}  // namespace cp_pool
