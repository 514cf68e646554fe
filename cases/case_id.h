// The name of a case: printed with its outcome, accepted back as a filter.
#pragma once

#include <span>
#include <string>

#include "cases/case.h"
#include "cases/case_json.h"

namespace cp_pool {

// "suite/model/comm/cpN/layout/dtype", "/pad" if pad_between_seqs, then a part for each field of `also`, in that order.
// also: further fields that tell the cases of one model apart, the other axes of its matrix. Their parts are
// "key=value". Some are shorter: training is "fwd" for forward only and nothing otherwise; deterministic and max_logit
// are their name if true and nothing if false. Fields that the ID has anyway are left out.
std::string case_id(const Case& c, std::span<const CaseField* const> also = {});

}  // namespace cp_pool
