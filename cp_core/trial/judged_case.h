// What a rank keeps of a case whose results it has judged, so that the failure can be diagnosed (diagnosis/). Every
// rank keeps it, whatever its own verdict, since all ranks take part in a diagnosis.
#pragma once

#include <memory>
#include <vector>

#include <c10/core/Device.h>

#include "cases/case.h"
#include "cases/case_report.h"
#include "cases/lengths.h"
#include "cp_core/verify/expected.h"
#include "cp_core/verify/reference.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool {

struct JudgedCase {
  Case c;
  SequenceLengths lengths;
  verify::Sharding sharding;  // with the bound factor of the run
  at::Device device = at::kCPU;
  verify::Results results;  // of this rank's first step, as judged: heads in the order of docs/definitions.md
  std::shared_ptr<const verify::Expected> expected;
  std::vector<Check> checks;  // of this rank, including those of the mask probe and of the repetition
};

}  // namespace cp_pool
