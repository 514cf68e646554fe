// Mistakes in the scale of scores.
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/hypothesis.h"

namespace cp_pool::diagnosis {

Hypotheses scale_hypotheses(const World& world, const Symptoms& /*symptoms*/) {
  const Case& c = world.c();
  Hypotheses all;
  const auto add = [&all](std::string id, std::string says, double scale) {
    all.push_back({.id = std::move(id), .says = std::move(says), .pass = [scale](const World&, Pass& pass) {
                     pass.scale = scale;
                   }});
  };
  const double scale = world.problem.scale();
  add("scale_missing", "scores are not scaled", 1);
  add("scale_twice", fmt::format("scores are scaled twice, in all by 1 / {}", c.head_dim_qk), scale * scale);
  if (c.head_dim_qk != c.head_dim_v) {
    add("scale_of_head_dim_v",
        fmt::format("the scale is that of head_dim_v, 1 / sqrt({}) instead of 1 / sqrt({})", c.head_dim_v,
                    c.head_dim_qk),
        1 / std::sqrt(static_cast<double>(c.head_dim_v)));
  }
  return all;
}

}  // namespace cp_pool::diagnosis
