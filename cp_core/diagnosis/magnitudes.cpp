#include <cmath>

#include <ATen/ops/zeros_like.h>

#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {
namespace {

// The weight of the rounding of a score relative to that of its p (docs/numerics.md).
constexpr double kScoreWeight = 0.5;
// Scores of inputs with standard deviation 1 are smaller.
constexpr double kLargeScore = 50;

class Magnitudes {
 public:
  Magnitudes(const SimulatedStep& model, const Forward& forward)
      : model_(model),
        dense_(*model.dense),
        forward_(forward),
        operands_(dense_, model.forward, /*absolute=*/true),
        large_scores_(dense_.problem.has_large_scores() || forward.scores.abs().max().item<double>() > kLargeScore) {}

  WholeResults get(const Backward* backward) {
    const at::Tensor p = forward_.p.abs().nan_to_num_(0.0);
    of_p_ = rounding_of(model_.forward, operands_, p);
    const at::Tensor out = operands_.times_v(with_rounding(p, of_p_, model_.forward));
    results_.out = out.transpose(0, 1).contiguous();
    const at::Tensor& lse = forward_.results.lse;
    results_.lse = lse.abs().masked_fill_(lse.isinf(), 0.0).add_(1.0);
    if (of_p_.defined()) results_.lse.add_(of_p_.sum(-1).transpose(0, 1).unsqueeze(-1));
    if (forward_.results.max_logit.defined()) results_.max_logit = of_max_logit();
    if (backward != nullptr) add_gradients(*backward, out);
    return results_;
  }

 private:
  [[nodiscard]] bool rounds_scores() const {
    return dense_.problem.dtype == DType::fp32 || large_scores_ || forward_.slope.defined();
  }
  // Returns the rounding of the scores of all pairs, in units of the floor of fp32.
  [[nodiscard]] at::Tensor rounding_of_scores(const Pass& pass, const Operands& operands) const {
    at::Tensor rounding = operands.raw_scores().mul_(kScoreWeight * std::abs(pass.scale));
    if (!forward_.slope.defined()) return rounding;
    const at::Tensor tanh = forward_.slope.neg().add_(1.0).sqrt_();
    return rounding.add_(tanh, pass.softcap * verify::tanh_error(dense_.problem.dtype));
  }
  [[nodiscard]] double weight_of_fp32() const {
    return verify::floor_factor(DType::fp32) / verify::floor_factor(dense_.problem.dtype);
  }

  // Returns p times the rounding of its score and, with large scores, of lse. Undefined if the rounding of scores does
  // not count.
  [[nodiscard]] at::Tensor rounding_of(const Pass& pass, const Operands& operands, const at::Tensor& p) const {
    if (!rounds_scores()) return {};
    at::Tensor of_p = rounding_of_scores(pass, operands).mul_(p);
    if (!large_scores_) return of_p;
    const at::Tensor of_scores = of_p.sum(-1, /*keepdim=*/true);
    const at::Tensor lse = forward_.lse.unsqueeze(-1).abs();
    return of_p.add_(p.mul(lse.masked_fill(lse.isinf(), 0.0).add_(1.0).add_(of_scores)));
  }

  [[nodiscard]] at::Tensor with_rounding(const at::Tensor& p, const at::Tensor& of_p, const Pass& pass) const {
    if (!of_p.defined()) return p;
    const at::Tensor all = p.add(of_p, weight_of_fp32());
    return large_scores_ ? all.add_(pass.times.ne(0.0), underflow()) : all;
  }
  // In units of the floor.
  [[nodiscard]] double underflow() const {
    return verify::underflow_error(dense_.problem.dtype) / verify::floor_factor(dense_.problem.dtype);
  }

  [[nodiscard]] at::Tensor of_max_logit() const {
    const at::Tensor& value = forward_.results.max_logit;
    at::Tensor magnitude = value.abs().masked_fill_(value.isinf(), 0.0).add_(1.0);
    if (!rounds_scores()) return magnitude;
    const at::Tensor rounding = rounding_of_scores(model_.forward, operands_);
    return magnitude.add_(rounding.flatten(1).amax(1).view({1, -1, 1}));
  }

  void add_gradients(const Backward& backward, const at::Tensor& out_magnitude) {
    const Pass& pass = model_.backward;
    const Operands operands(dense_, pass, /*absolute=*/true);
    const at::Tensor plain = backward.p.abs().nan_to_num_(0.0);
    const at::Tensor p = with_rounding(plain, rounding_of(pass, operands, plain), pass);
    const at::Tensor returned = forward_.results.out.transpose(0, 1).nan_to_num(0.0, 0.0, 0.0).abs();
    at::Tensor delta = operands.dout().mul(returned).sum(-1, /*keepdim=*/true);
    at::Tensor error_of_delta = at::zeros_like(delta);
    if (large_scores_) {
      error_of_delta = operands.dout().mul(out_magnitude).sum(-1, /*keepdim=*/true);
      delta.add_(error_of_delta, verify::floor_factor(dense_.problem.dtype));
    }
    Backward magnitude = backward;
    magnitude.slope.reset();  // it is at most 1
    magnitude.p = p;
    magnitude.ds = operands.raw_dp().add_(delta).mul_(p).add_(plain.mul(error_of_delta));
    if (large_scores_) magnitude.ds.add_(pass.times.ne(0.0), underflow());
    if (backward.dsink.defined()) {
      magnitude.dsink = backward.p_sink.mul(delta.add(error_of_delta).squeeze(-1));
    }
    sum_by(model_, magnitude, /*absolute=*/true, results_);
  }

  const SimulatedStep& model_;
  const DenseProblem& dense_;
  const Forward& forward_;
  Operands operands_;
  bool large_scores_;  // of the case, or only of the mistake
  at::Tensor of_p_;
  WholeResults results_;
};

}  // namespace

WholeResults magnitudes(const SimulatedStep& model, const Forward& forward, const Backward* backward) {
  return Magnitudes(model, forward).get(backward);
}

}  // namespace cp_pool::diagnosis
