// The ID of a case, which is printed with its outcome and accepted as a filter, and the name of files that belong to
// the case.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cases/case.h"
#include "cases/case_json.h"

namespace cp_pool {

// Returns the ID with each '/' replaced by "__", in at most 200 bytes, which leaves room for an extension. An ID that
// is too long is cut and followed by a hash of the whole ID.
std::string case_file_name(std::string_view id);

// Returns "suite/model/comm/cpN/layout/dtype", then "/pad" if pad_between_seqs, then a part for each field of `also`,
// in that order.
// also: further fields that distinguish the cases of one model: the other axes of its matrix. Their parts are
// "key=value", with these exceptions: training is "fwd" if false and left out if true; deterministic, strided and
// max_logit are their name if true and left out if false. Fields that every ID shows are not repeated.
std::string case_id(const Case& c, std::span<const CaseField* const> also = {});

}  // namespace cp_pool
