// Chooses, row by row, which of several models the returned results fit best. The models differ in how they cut the
// keys of queries into parts.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"

namespace cp_pool::diagnosis {

// int64 [q rows]: the index of the model that is nearest to the out and lse that ranks returned; the first one among
// equals. All 0 if a rank did not return them.
at::Tensor nearest_model(const std::vector<Model>& models);
// The same by dq.
at::Tensor nearest_model_in_dq(const std::vector<Model>& models);
// The same by dk: int64 [kv rows]. The models must be of a whole world, not of selected queries.
at::Tensor nearest_model_in_dk(const std::vector<Model>& models);

// Takes each element of the member from the model with that index. number: int64, broadcastable to the member's shape.
at::Tensor chosen(const at::Tensor& number, const std::vector<Model>& models, at::Tensor Model::* member);

}  // namespace cp_pool::diagnosis
