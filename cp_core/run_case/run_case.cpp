#include "cp_core/run_case/run_case.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <variant>

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "cases/case_id.h"
#include "cases/case_phases.h"
#include "cases/lengths.h"
#include "cp_core/cuda/device.h"
#include "cp_core/lru_cache.h"
#include "cp_core/run_case/dump.h"
#include "cp_core/run_case/rank_load.h"
#include "cp_core/run_case/repetition.h"
#include "cp_core/vector_math.h"
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
constexpr std::size_t kCacheBytesCuda = std::size_t{16} << 30U;
constexpr std::size_t kInputBytesCpu = std::size_t{64} << 20U;
constexpr std::size_t kCacheShareCuda = 8;  // the cache has at most 1 / 8 of the device's memory

std::size_t cache_bytes(const at::Device& device, int ranks_on_gpu) {
  if (!device.is_cuda()) return kCacheBytesCpu;
  const std::size_t share = std::min(kCacheBytesCuda, cuda_device().memory().device_bytes / kCacheShareCuda);
  return share / static_cast<std::size_t>(ranks_on_gpu);
}

// What a rank has made for earlier cases. Most problems recur, with other layouts, communication types and backends.
struct RankCache {
  template <typename Value>
  using Of = LruCache<verify::CanonicalProblem, std::shared_ptr<const Value>>;  // weight in bytes

  RankCache(const at::Device& device, int ranks_on_gpu)
      : expected(cache_bytes(device, ranks_on_gpu)),
        inputs(device.is_cpu() ? kInputBytesCpu : 0),
        probes(device.is_cpu() ? kInputBytesCpu : 0) {}

  verify::ExpectedCache expected;
  Of<verify::CanonicalInputs> inputs;
  Of<verify::MaskProbe> probes;
};

// Returns the cache of this rank. Workers have one rank and one device; in tests, several ranks are threads of a
// process.
RankCache& cache_of(const Communicator& cp, const RunOptions& options) {
  static std::mutex mutex;
  static std::map<int, RankCache> caches;
  const int rank = options.world_rank.value_or(cp.rank());
  const std::lock_guard lock(mutex);
  const auto found = caches.find(rank);
  if (found != caches.end()) return found->second;
  return caches.try_emplace(rank, options.device, options.ranks_on_gpu).first->second;
}

std::size_t bytes_of(const verify::CanonicalInputs& inputs) {
  std::size_t bytes = 0;
  for (const at::Tensor* const input : {&inputs.q, &inputs.k, &inputs.v, &inputs.dout, &inputs.bias}) {
    if (input->defined()) bytes += input->nbytes();
  }
  return bytes;
}

std::size_t bytes_of(const verify::MaskProbe& probe) {
  return bytes_of(probe.inputs) + probe.expected.bytes();
}

// Returns what `make` makes of the problem, or has made of it for an earlier case.
template <typename Value>
std::shared_ptr<const Value> made_once(RankCache::Of<Value> RankCache::* kept, const Communicator& cp,
                                       const RunOptions& options, const verify::CanonicalProblem& problem,
                                       Value (*make)(const verify::CanonicalProblem&, const at::Device&)) {
  auto* const cache = options.reference_cache ? &(cache_of(cp, options).*kept) : nullptr;
  const auto* const found = cache ? cache->find(problem) : nullptr;
  if (found != nullptr) return *found;
  auto made = std::make_shared<const Value>(make(problem, options.device));
  if (cache) cache->keep(problem, made, bytes_of(*made));
  return made;
}

// Ranks compute the expected results together. If only some ranks have them in their caches, because a case ended
// halfway, all compute them again.
std::shared_ptr<const Expected> expected_of(const verify::CanonicalProblem& problem,
                                            const verify::CanonicalInputs& inputs, Communicator& cp,
                                            const RunOptions& options) {
  if (!options.reference_cache)
    return std::make_shared<const Expected>(verify::compute_expected_together(problem, inputs, cp));
  verify::ExpectedCache& cache = cache_of(cp, options).expected;
  auto expected = cache.find(problem);
  if (!anywhere(expected == nullptr, cp, options.device, "whether expected results are cached")) return expected;
  expected = std::make_shared<const Expected>(verify::compute_expected_together(problem, inputs, cp));
  cache.keep(problem, expected);
  return expected;
}

class CaseRun {
 public:
  CaseRun(Implementation& implementation, const Case& c, const SequenceLengths& lengths,
          const verify::Sharding& sharding, const CpGroups& groups, const RunOptions& options)
      : implementation_(implementation),
        case_(c),
        groups_(groups),
        options_(options),
        lengths_(lengths),
        view_(c, lengths_, sharding, groups.cp->rank(), groups.cp->size(), options.device) {
    report_.bound_factor = sharding.bound_factor;
    report_.pairs =
        pairs_by_rank(c, lengths_, sharding, groups.cp->size())[static_cast<std::size_t>(groups.cp->rank())];
  }

  // Each part communicates first and judges afterwards, and no rank skips a part because of its own result, so that a
  // failed check leaves no other rank waiting.
  RankReport run() {
    check_results();
    timed(case_phase::kProbe, [&] { probe_mask(); });
    const auto failed = std::ranges::find(report_.checks, false, &Check::ok);
    if (failed != report_.checks.end()) {
      report_.outcome = CaseOutcome::fail;
      report_.reason = fmt::format("{}: {}", failed->tensor, failed->message);
    }
    if (judged_) judged_->checks = report_.checks;
    if (options_.perf && all_passed()) {
      judged_.reset();  // its memory belongs to the timed steps
      take_times(*options_.perf);
    }
    report_.judged = std::move(judged_);
    return std::move(report_);
  }

 private:
  void check_results() {
    const auto canonical = verify::canonical_problem(case_, lengths_);
    verify::CanonicalInputs inputs;
    Shards shards;
    timed(case_phase::kInputs, [&] {
      inputs = *made_once(&RankCache::inputs, *groups_.cp, options_, canonical, verify::make_inputs);
      shards = verify::make_shards(case_, inputs, view_);
    });
    Results results;
    {
      const StepSetting setting = setting_of(case_);
      const std::unique_ptr<Step> first = implementation_.make_step(setting, shards);
      timed(case_phase::kForward, [&] { first->forward(results); });
      if (case_.training) {
        timed(case_phase::kBackward, [&] { first->backward(results); });
      }
      report_.remarks.merge(first->remarks());
    }
    results = verify::in_defined_heads(case_, results, view_);
    show_results(results, /*repeated=*/false);
    Repetition repetition(
        case_, view_, shards,
        {.bits = implementation_.repeats_bits(case_, options_.device),
         .odd = implementation_.is_odd() && !case_.fp8,  // the scales of FP8 may not be odd
         .remarks_other_bits = implementation_.remarks_other_bits()},
        [&] { return verify::in_defined_heads(case_, step(case_, shards), view_); },
        [&](Results& again) { show_results(again, /*repeated=*/true); });
    const auto first_step = time_of(case_phase::kForward) + time_of(case_phase::kBackward);
    timed(case_phase::kRepeat, [&] { repetition.run(); });

    std::shared_ptr<const Expected> expected;
    timed(case_phase::kReference, [&] { expected = expected_of(canonical, inputs, *groups_.cp, options_); });
    bool repeats = true;
    timed(case_phase::kCompare, [&] {
      add(verify::check_outputs(case_, *expected, view_, results));
      if (results.part_lse.defined()) add({verify::check_part_lse(canonical, inputs, view_, results)});
      report_.output_hash = verify::hash_of(results);
      repetition.compare(*expected, results);
      repeats = !repetition.differs_anywhere(*groups_.cp, options_.device);
    });
    if (case_.fp8) timed(case_phase::kProbe, [&] { probe_weights(canonical, inputs, *expected, results); });
    if (!repeats) timed(case_phase::kRepeat, [&] { repetition.explain(*groups_.cp, options_.device); });
    add(repetition.failed_checks());
    if (std::string remark = repetition.remark(); !remark.empty()) report_.remarks.insert(std::move(remark));
    if (options_.keep_judged) {
      judged_ = std::make_shared<JudgedCase>(JudgedCase{.id = options_.id,
                                                        .c = case_,
                                                        .lengths = lengths_,
                                                        .sharding = view_.sharding,
                                                        .device = options_.device,
                                                        .results = results,
                                                        .expected = expected,
                                                        .checks = {},
                                                        .repeat_fault = repetition.fault(),
                                                        .first_step = first_step,
                                                        .repeated_step = time_of(case_phase::kRepeat)});
    }
    if (options_.dump_dir) {
      const std::string id = options_.id.empty() ? case_id(case_) : options_.id;
      timed(case_phase::kDump, [&] {
        try {
          const auto file = *options_.dump_dir / (case_file_name(id) + options_.group_suffix + ".safetensors");
          dump_case(file, id, case_, lengths_, view_.sharding, inputs, results, *groups_.cp);
        } catch (const verify::FileError& e) {
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

  // Whether every rank passed; the same on every rank.
  bool all_passed() {
    const bool failed = report_.outcome == CaseOutcome::fail;
    return !anywhere(failed, *groups_.cp, options_.device, "verdicts before the timed steps");
  }

  void take_times(const PerfOptions& perf) {
    StepTimes& times = report_.perf.emplace();
    timed(case_phase::kTimed, [&] { time_case(implementation_, case_, lengths_, view_, groups_, perf, times); });
    timed(case_phase::kTimedAlone,
          [&] { time_one_rank(implementation_, case_, lengths_, groups_, perf, options_.device, times); });
    if (!times.trace_error.empty()) report_.lost_outputs.push_back({"trace", times.trace_error});
  }

  void probe_mask() {
    const Case c = verify::mask_probe_case(case_, implementation_.probe_heads(case_));
    const auto probe = made_once(&RankCache::probes, *groups_.cp, options_, verify::canonical_problem(c, lengths_),
                                 verify::make_mask_probe);
    const Results results = step(c, verify::make_shards(c, probe->inputs, view_));
    add(verify::check_mask_probe(c, probe->expected, view_, results));
  }

  // The further checks of a case in FP8.
  void probe_weights(const verify::CanonicalProblem& canonical, const verify::CanonicalInputs& inputs,
                     const Expected& expected, const Results& results) {
    if (results.fp8_scales.defined()) add(verify::check_fp8_scales(canonical, inputs, results));
    Case c = case_;
    c.training = false;
    const auto probe = verify::make_weight_probe(canonical, inputs, expected);
    const Results of_probe = verify::in_defined_heads(c, step(c, verify::make_shards(c, probe.inputs, view_)), view_);
    add({verify::check_weight_probe(c, probe.expected, view_, of_probe)});
  }

  // The setting of the steps that are verified. If the timed steps will be replayed as a graph, a step is verified in
  // the same form.
  StepSetting setting_of(const Case& c) const {
    return {.c = c,
            .lengths = lengths_,
            .groups = groups_,
            .view = view_,
            .device = options_.device,
            .replayed = options_.perf && options_.perf->graph};
  }

  Results step(const Case& c, const Shards& shards) {
    std::set<std::string> remarks;
    Results results = take_step(implementation_, setting_of(c), shards, &remarks);
    report_.remarks.merge(remarks);
    return results;
  }

  void add(std::vector<Check> checks) { std::ranges::move(checks, std::back_inserter(report_.checks)); }

  // Runs and times a phase, or more of it, and reports its start to the caller.
  template <typename Body>
  void timed(const char* name, Body&& body) {
    using std::chrono::steady_clock;
    if (options_.on_phase) options_.on_phase(name);
    const auto start = steady_clock::now();
    body();
    groups_.cp->synchronize(name);  // errors and hangs of the device are reported here
    report_.timings_ms[name] += std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
  }

  // How long a phase has taken so far.
  [[nodiscard]] std::chrono::duration<double> time_of(const char* phase) const {
    const auto found = report_.timings_ms.find(phase);
    return std::chrono::duration<double, std::milli>(found == report_.timings_ms.end() ? 0 : found->second);
  }

  Implementation& implementation_;
  const Case& case_;
  const CpGroups& groups_;
  const RunOptions& options_;
  const SequenceLengths& lengths_;
  RankView view_;
  RankReport report_;
  std::shared_ptr<JudgedCase> judged_;
};

// Whether a case runs, and how it is sharded.
struct Plan {
  std::string skip;  // why it does not run, as a sentence
  verify::Sharding sharding;
};

Plan plan_of(Implementation& implementation, const Case& c, const SequenceLengths& lengths, const at::Device& device,
             int ranks) {
  Plan plan;
  plan.skip = implementation.skip_reason(c, device);
  if (!plan.skip.empty()) return plan;
  plan.sharding = implementation.sharding(c, lengths);
  // Checked before anything runs. If the lengths do not fit a convention, the case is skipped. If rows that the
  // implementation lists itself are wrong, that is the implementation's error.
  std::string fault = verify::sharding_fault(plan.sharding, c, lengths, ranks);
  if (fault.empty()) return plan;
  if (!std::holds_alternative<verify::Convention>(plan.sharding.rows)) {
    throw std::invalid_argument(fmt::format("the rows that the implementation declares cannot be judged: {}", fault));
  }
  plan.skip = std::move(fault);
  return plan;
}

}  // namespace

std::string why_skipped(Implementation& implementation, const Case& c, const at::Device& device, int ranks) {
  return plan_of(implementation, c, resolve_lengths(c), device, ranks).skip;
}

std::vector<std::int64_t> expected_pairs(Implementation& implementation, const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  return pairs_by_rank(c, lengths, implementation.sharding(c, lengths), c.cp_size);
}

RankReport run_case(Implementation& implementation, const Case& c, const CpGroups& groups, const RunOptions& options) {
  const auto skip = [](std::string reason) {
    RankReport report;
    report.outcome = CaseOutcome::skip;
    report.reason = std::move(reason);
    return report;
  };
  const SequenceLengths lengths = resolve_lengths(c);
  Plan plan = plan_of(implementation, c, lengths, options.device, groups.cp->size());
  if (!plan.skip.empty()) return skip(std::move(plan.skip));
  const at::NoGradGuard no_grad;
  verify::Sharding& sharding = plan.sharding;
  sharding.bound_factor *= options.bound_factor;
  if (options.shares_gpus) {
    const auto forget = [&] { cache_of(*groups.cp, options).expected.clear(); };
    std::string reason = shortage_on_shared_gpu(verify::canonical_problem(c, lengths), *groups.cp, options.device,
                                                options.ranks_on_gpu, forget);
    if (!reason.empty()) return skip(std::move(reason));
  }
  if (options.sets_global_flags) {
    at::globalContext().setDeterministicAlgorithms(c.deterministic, /*warn_only=*/false);
  }
  return CaseRun(implementation, c, lengths, sharding, groups, options).run();
}

Results take_step(Implementation& implementation, const StepSetting& setting, const Shards& shards,
                  std::set<std::string>* remarks) {
  const std::unique_ptr<Step> step = implementation.make_step(setting, shards);
  Results results;
  step->forward(results);
  if (shards.dout.defined()) step->backward(results);
  if (remarks != nullptr) remarks->merge(step->remarks());
  return results;
}

void reset_numeric_state(const at::Device& device) {
  constexpr std::uint64_t kSeed = 1234;
  settle_vector_math();
  at::manual_seed(kSeed);
  if (device.is_cuda()) cuda_device().reset(kSeed);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(false, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(true);
  context.setDeterministicCuDNN(false);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuDNN(false);
  context.setFloat32MatmulPrecision("highest");  // no TF32 in fp32 products
  c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
}

}  // namespace cp_pool
