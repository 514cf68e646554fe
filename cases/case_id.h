// The name of a case: printed with its outcome, accepted back as a filter.
#pragma once

#include <span>
#include <string>

#include "cases/case.h"
#include "cases/case_json.h"

namespace cp_pool {

// "suite/model/comm/cpN/layout/dtype", "/pad" if pad_between_seqs, then a part for each field of `also`, in that order.
// `also` is what else tells the cases of one model apart: the further axes of its matrix. Their parts are "key=value",
// shorter where the value says it all: training "fwd" for forward only and nothing else, deterministic and max_logit
// their name if true and nothing if false. Fields that the ID has anyway are passed over.
std::string case_id(const Case& c, std::span<const CaseField* const> also = {});

}  // namespace cp_pool
