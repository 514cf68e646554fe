// What a rank keeps of a case whose results it has judged, so that the failure can be diagnosed (diagnosis/). Every
// rank keeps it, whatever its own verdict, since all ranks take part in a diagnosis.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "cases/case.h"
#include "cases/case_report.h"
#include "cases/lengths.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool {

// What is wrong with the repetition of a step; the same on every rank.
enum class RepeatFault {
  none,
  other_bits,     // the same step does not give the same results
  sign,           // it does, but negated inputs do not give negated results
  earlier_state,  // results of the repetition are those of the first step
};

struct JudgedCase {
  std::string id;
  Case c;
  SequenceLengths lengths;
  verify::Sharding sharding;  // with the bound factor of the run
  at::Device device = at::kCPU;
  verify::Results results;  // of this rank's first step, as judged: heads in the order of docs/definitions.md
  std::shared_ptr<const verify::Expected> expected;
  std::vector<Check> checks;  // of this rank, including those of the mask probe and of the repetition
  RepeatFault repeat_fault = RepeatFault::none;
  // How long steps of this rank took. The first one may have had to build plans and compile kernels for its shapes.
  std::chrono::duration<double> first_step{0};
  std::chrono::duration<double> repeated_step{0};
};

}  // namespace cp_pool
