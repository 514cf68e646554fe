#include "cp_core/diagnosis/hypotheses.h"

#include <utility>

#include "cp_core/diagnosis/explanation.h"

namespace cp_pool::diagnosis {
namespace {

using std::chrono::milliseconds;

// Hardly the seed of any case.
constexpr std::uint64_t kOtherSeed = 0x9E3779B97F4A7C15;

// With lengths that do not depend on the seed.
Case with_lengths(const Case& c, const SequenceLengths& lengths) {
  Case fixed = c;
  if (c.layout != Layout::thd) return fixed;
  fixed.seqlens = lengths.valid_q;
  fixed.seqlens_kv = lengths.valid_kv;
  return fixed;
}

Observed observe(Questions& questions, const JudgedCase& judged) {
  Observed observed{.the_case = questions.the_case(), .sharp = {}, .other_seed = {}, .probe = {}};
  Case c = with_lengths(judged.c, judged.lengths);
  if (c.dtype != DType::fp32) {
    Case sharp = c;
    sharp.dtype = DType::fp32;
    observed.sharp = questions.variant(sharp, judged.lengths);
    if (observed.sharp) c = sharp;
  }
  c.seed ^= kOtherSeed;
  observed.other_seed = questions.variant(c, judged.lengths);
  return observed;
}

}  // namespace

Hypotheses all_hypotheses(const World& world, const Symptoms& symptoms) {
  Hypotheses all;
  for (const auto& subject :
       {mask_hypotheses, row_hypotheses, ring_hypotheses, merge_hypotheses, scale_hypotheses, head_hypotheses,
        gradient_hypotheses, sink_hypotheses, bias_hypotheses, max_logit_hypotheses, empty_row_hypotheses,
        precision_hypotheses}) {
    for (Hypothesis& hypothesis : subject(world, symptoms)) all.push_back(std::move(hypothesis));
  }
  return all;
}

Diagnosis explain(Implementation& implementation, const JudgedCase& judged, const SeenKeys* seen,
                  const CpGroups& groups, const Settings& settings) {
  if (settings.on_phase) settings.on_phase("hypotheses");
  Questions questions(implementation, judged, groups, settings);
  const Observed observed = observe(questions, judged);
  if (groups.cp->rank() != 0) return {};
  return explanation_of(observed, seen, settings);
}

}  // namespace cp_pool::diagnosis
