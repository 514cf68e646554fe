// Mistakes in the scale of scores, and in their range.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "cp_core/diagnosis/subject.h"

namespace cp_pool::diagnosis {
namespace {

class Scales : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    const double scale = world_.problem.scale();
    scaled("scale_missing", "scores are not scaled", 1);
    scaled("scale_twice", fmt::format("scores are scaled twice, in all by 1 / {}", c_.head_dim_qk), scale * scale);
    if (c_.head_dim_qk != c_.head_dim_v) {
      scaled("scale_of_head_dim_v",
             fmt::format("the scale is that of head_dim_v, 1 / sqrt({}) instead of 1 / sqrt({})", c_.head_dim_v,
                         c_.head_dim_qk),
             1 / std::sqrt(static_cast<double>(c_.head_dim_v)));
    }
    for (const double least : {0.0, -1.0, -5.0, -10.0, -20.0, -30.0, -50.0, -80.0, -100.0}) {
      pass("scores_clipped", fmt::format("scores below {:g} are raised to {:g}", least, least),
           [least](const World&, Pass& pass) { pass.least_score = least; });
    }
    return std::move(all_);
  }

 private:
  void scaled(std::string id, std::string says, double scale) {
    pass(std::move(id), std::move(says), [scale](const World&, Pass& pass) { pass.scale = scale; });
  }
};

}  // namespace

Hypotheses scale_hypotheses(const World& world, const Symptoms& symptoms) {
  return Scales(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
