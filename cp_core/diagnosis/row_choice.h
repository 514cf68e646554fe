// Of two models that differ in how queries' keys are cut into parts: which one each query's results show.
#pragma once

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"

namespace cp_pool::diagnosis {

// bool [q rows]: where the second is nearer to the out and lse that ranks gave. All false where these are not known.
at::Tensor second_is_nearer(const Model& first, const Model& second);
// The same by dq. Of a whole world.
at::Tensor second_is_nearer_in_dq(const Model& first, const Model& second);

}  // namespace cp_pool::diagnosis
