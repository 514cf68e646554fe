// Of models that differ in how queries' keys are cut into parts: which one each query's results show.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "cp_core/diagnosis/model.h"

namespace cp_pool::diagnosis {

// int64 [q rows]: the number of the model that is nearest to the out and lse that ranks gave, the first of those that
// are as near. All 0 where these are not known.
at::Tensor nearest_model(const std::vector<Model>& models);
// The same by dq. Of a whole world.
at::Tensor nearest_model_in_dq(const std::vector<Model>& models);
// The same by dk: int64 [kv rows].
at::Tensor nearest_model_in_dk(const std::vector<Model>& models);

// What the models of these numbers have at each place. number: int64, fits to the shape of the member.
at::Tensor chosen(const at::Tensor& number, const std::vector<Model>& models, at::Tensor Model::* member);

}  // namespace cp_pool::diagnosis
