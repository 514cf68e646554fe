#include "worker/capabilities.h"

#include <torch/headeronly/version.h>

#include "cases/case_names.h"

namespace cp_pool {

namespace {

template <typename Enum>
nlohmann::json names() {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [value, name] : kNames<Enum>) out.push_back(name);
  return out;
}

}  // namespace

nlohmann::json capabilities() {
  // A case may name any of these; on CPU every backend name runs as math, and the result says so.
  return {{"backends", {{"cpu", {"math"}}}},
          {"comm", names<CommType>()},
          {"layouts", names<Layout>()},
          {"dtypes", names<DType>()},
          {"requests", {"cancel"}}};
}

nlohmann::json versions() {
  return {{"cp_pool", CP_POOL_VERSION}, {"torch", TORCH_VERSION}, {"compiler", __VERSION__}};
}

}  // namespace cp_pool
