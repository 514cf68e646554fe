// The outcomes of a case. A rank's verdict (pass, fail, skip), a worker's result, the driver, events and reports all
// use this enumeration.
#pragma once

#include <array>
#include <cstddef>

#include "cases/enum_names.h"

namespace cp_pool {

// Every expanded case ends in exactly one of these.
enum class CaseOutcome {
  pass,       // verified on every rank
  fail,       // a rank's answer is wrong
  skip,       // the case cannot be run here
  error,      // an exception, or a library's failure
  timeout,    // the case exceeded a deadline
  crash,      // a rank died
  infra,      // no pool could run it to a verdict
  cancelled,  // the run was interrupted while the case ran
  not_run,    // the run ended before the case started
};
inline constexpr std::size_t kCaseOutcomes = 9;
using OutcomeCounts = std::array<std::size_t, kCaseOutcomes>;  // indexed by CaseOutcome

template <>
inline constexpr auto kNames<CaseOutcome> = kSpelledNames<CaseOutcome::not_run, '-'>;

// Whether a worker may report the outcome. The driver alone decides the others.
constexpr bool is_of_a_worker(CaseOutcome outcome) {
  return outcome <= CaseOutcome::timeout || outcome == CaseOutcome::cancelled;
}

constexpr bool is_failure(CaseOutcome outcome) {
  return outcome == CaseOutcome::fail || outcome == CaseOutcome::error || outcome == CaseOutcome::timeout ||
         outcome == CaseOutcome::crash;
}

// Whether the case ran to an outcome of its own: a pass or a failure.
constexpr bool is_of_the_case(CaseOutcome outcome) {
  return outcome == CaseOutcome::pass || is_failure(outcome);
}

// Whether a rerun of failures leaves the case out.
constexpr bool went_well(CaseOutcome outcome) {
  return outcome == CaseOutcome::pass || outcome == CaseOutcome::skip;
}

// False if the run ended before the case did.
constexpr bool was_reached(CaseOutcome outcome) {
  return outcome != CaseOutcome::not_run && outcome != CaseOutcome::cancelled;
}

// How much attention an outcome needs from a reader.
enum class Urgency { good, other, bad };
constexpr Urgency urgency_of(CaseOutcome outcome) {
  if (outcome == CaseOutcome::pass) return Urgency::good;
  return is_failure(outcome) || outcome == CaseOutcome::infra ? Urgency::bad : Urgency::other;
}

}  // namespace cp_pool
