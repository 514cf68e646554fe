#include "worker/capabilities.h"

#include <utility>

#include <torch/headeronly/version.h>

#include "cases/case_json.h"
#include "cases/case_names.h"
#include "cp_core/cuda/device.h"

namespace cp_pool {

namespace {

template <typename Enum>
nlohmann::json names() {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [value, name] : kNames<Enum>) out.push_back(name);
  return out;
}

}  // namespace

nlohmann::json capabilities(const at::Device& device, bool prepares, int shared_gpus, bool diagnoses) {
  // A case may name any backend: on a CPU math computes for every backend, and the result says so.
  const nlohmann::json backends =
      device.is_cuda() ? nlohmann::json{{"cuda", names<Backend>()}} : nlohmann::json{{"cpu", {"math"}}};
  nlohmann::json newer_fields = nlohmann::json::array();
  for (const CaseField& field : case_fields()) {
    if (!field.in_version_1) newer_fields.push_back(field.name);
  }
  nlohmann::json requests = {"cancel"};
  if (prepares) requests.push_back("prepare");
  nlohmann::json options = {"bound_factor"};
  if (diagnoses) options.insert(options.end(), {"diagnosis_ms", "known_mistakes"});
  return {{"backends", backends},
          {"comm", names<CommType>()},
          {"layouts", names<Layout>()},
          {"dtypes", names<DType>()},
          {"figures", true},
          {"shared_gpus", shared_gpus},
          {"requests", std::move(requests)},
          {"options", std::move(options)},
          {"case_fields", std::move(newer_fields)}};
}

nlohmann::json versions(const at::Device& device) {
  nlohmann::json out = {{"cp_pool", CP_POOL_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
  if (device.is_cuda()) {
    out["cuda"] = cuda_device().versions();
    out["gpu"] = cuda_device().device_name(device.index());
  }
  return out;
}

}  // namespace cp_pool
