// Mistakes by a constant: results that are the correct ones times a number, and scores with another scale.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <numbers>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/diagnosis/hypothesis.h"

namespace cp_pool::diagnosis {
namespace {

// Whether a fitted number may be the one that has a name.
bool near(double fitted, double named, double precision = 0) {
  constexpr double kNear = 1e-3;
  return std::abs(fitted - named) <= std::max(kNear, precision) * std::abs(named);
}

class Constants : public Subject {
 public:
  Constants(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    times_a_number();
    if (symptoms_.fails("out")) another_scale();
  }

 private:
  using Names = std::vector<std::string>;

  struct Named {
    std::string id;
    std::string says;  // after "is" or "are"
    Constant constant;
    Names names = {};
  };

  // Failing results with the same constant.
  struct Alike {
    Constant constant;
    Names names;
  };

  static bool are_among(const Names& names, std::initializer_list<std::string_view> some) {
    return std::ranges::all_of(names, [&](const std::string& name) { return std::ranges::count(some, name) > 0; });
  }

  // The known reasons for the constant of these results, or its value if there are none.
  [[nodiscard]] std::vector<Named> reasons(const Alike& alike) const {
    const auto& [constant, names] = alike;
    std::vector<Named> all;
    const auto factor = [&, fitted = constant](double known, std::string says,
                                               const char* id = "result_times_constant") {
      if (near(fitted.factor, known, fitted.precision)) all.push_back({id, std::move(says), {.factor = known}});
    };
    const auto ranks = static_cast<double>(dense_.ranks);
    if (constant.shift != 0) {
      if (dense_.ranks > 1 && near(constant.shift, std::log(ranks))) {
        all.push_back({"result_times_constant",
                       fmt::format("too large by log({0}), as if every key counted {0} times", dense_.ranks),
                       {.shift = std::log(ranks)}});
      }
    } else if (constant.factor == 0) {
      all.push_back({"result_times_constant", "0 everywhere", constant});
    } else {
      const bool gradients = !are_among(names, {"out", "lse", "max_logit"});
      if (dense_.ranks > 1) {
        factor(ranks, fmt::format("multiplied by the number of ranks, {}", dense_.ranks),
               gradients ? "gradient_times_ranks" : "result_times_constant");
        factor(1 / ranks, fmt::format("divided by the number of ranks, {}", dense_.ranks),
               gradients ? "gradient_over_ranks" : "result_times_constant");
      }
      if (are_among(names, {"dq", "dk"})) {
        factor(1 / dense_.problem.scale(), "not multiplied by the scale", "gradient_scale_missing");
        factor(dense_.problem.scale(), "multiplied by the scale twice");
      }
      if (dense_.group() > 1 && are_among(names, {"dk", "dv"})) {
        factor(1 / static_cast<double>(dense_.group()),
               fmt::format("averaged over the {} query heads of a key-value head instead of summed", dense_.group()));
      }
      factor(-1, "negated");
      const char* const base_2 = are_among(names, {"lse"}) ? "lse_base_2" : "result_times_constant";
      factor(std::numbers::ln2, "multiplied by ln 2, as if it were in base 2", base_2);
      factor(std::numbers::log2e, "multiplied by log2(e), so that it is in base 2", base_2);
    }
    if (all.empty()) {
      all.push_back({"result_times_constant",
                     constant.shift == 0 ? fmt::format("multiplied by {:.4g}", constant.factor)
                                         : fmt::format("too {} by {:.4g}", constant.shift > 0 ? "large" : "small",
                                                       std::abs(constant.shift)),
                     constant});
    }
    for (Named& reason : all) reason.names = names;
    return all;
  }

  void times_a_number() {
    std::vector<Alike> alike;
    for (const auto& [name, constant] : symptoms_.constants) {
      const auto same = std::ranges::find_if(alike, [&, value = constant](const Alike& one) {
        return near(one.constant.factor, value.factor, std::max(one.constant.precision, value.precision)) &&
               near(one.constant.shift, value.shift);
      });
      (same == alike.end() ? alike.emplace_back(Alike{constant, {}}) : *same).names.push_back(name);
    }
    if (alike.size() == 1) {
      for (const Named& reason : reasons(alike.front())) add({reason});
    } else if (!alike.empty()) {
      std::vector<Named> first;
      first.reserve(alike.size());
      for (const Alike& one : alike) first.push_back(reasons(one).front());
      first.front().id = "result_times_constant";
      add(first);
    }
  }

  // Every failing result has a constant, or every one that the forward returns: gradients may follow from these.
  void add(const std::vector<Named>& wrong) {
    std::string says;
    std::map<std::string, Constant, std::less<>> constants;
    for (const auto& [id, what, constant, names] : wrong) {
      says += fmt::format("{}{} {} {}", says.empty() ? "" : ", and ", fmt::join(names, ", "),
                          names.size() == 1 ? "is" : "are", what);
      for (const std::string& name : names) constants.emplace(name, constant);
    }
    const auto change = [constants](const DenseProblem&, WholeResults& results) {
      for (const auto& [name, member] : verify::kResults) {
        at::Tensor& result = results.*member;  // the mask probe has no bias and no sink
        const auto found = constants.find(name);
        if (found != constants.end() && result.defined()) {
          result = result.mul(found->second.factor).add(found->second.shift);
        }
      }
    };
    const std::string& id = wrong.front().id;
    if (symptoms_.constants_alone) {
      results(id, says, change);
    } else {
      model(id, says, [change](SimulatedStep& model) { model.returned = change; });
    }
  }

  // The scale with which the returned out agrees best, if it agrees far better than with the right one.
  void another_scale() {
    const at::Tensor returned = joined_rows(dense_.observation->results, &WholeResults::out);
    if (!returned.defined()) return;
    const at::Tensor rows = evenly(dense_.q_rows.valid.nonzero().flatten(), 16);
    const DenseProblem some = dense_.with_queries(rows);
    const at::Tensor out = returned.index_select(0, rows);
    if (rows.numel() == 0 || !out.isfinite().all().item<bool>()) return;
    const double right = dense_.problem.scale();
    const auto error = [&](double log2) {
      SimulatedStep model(some);
      model.forward.scale = right * std::exp2(log2);
      return run_forward(model).results.out.sub(out).square().sum().item<double>();
    };
    double best = 0;
    const double of_right = error(best);
    double least = of_right;
    const auto compare = [&](double log2) {
      const double other = error(log2);
      if (other < least) std::tie(best, least) = std::pair(log2, other);
    };
    constexpr double kPrecise = 1e-8;
    double step = 0.5;
    for (double log2 = -6; log2 <= 6; log2 += step) compare(log2);
    for (; step > kPrecise; step /= 2) {
      for (const double log2 : {best - step, best + step}) compare(log2);
    }
    constexpr double kFarBetter = 0.01;
    if (least <= kFarBetter * of_right) name_scale(right * std::exp2(best));
  }

  void name_scale(double scale) {
    const double right = dense_.problem.scale();
    const auto is_root_of = [&](std::int64_t n) { return near(scale, 1 / std::sqrt(static_cast<double>(n))); };
    // softmax_hypotheses.cpp has these.
    if (near(scale, 1) || near(scale, right * right) || is_root_of(c_.head_dim_v)) return;
    std::string by = fmt::format("{:.4g}", scale);
    constexpr double kMost = 1024;  // larger squares are near a whole number by chance
    const double square = 1 / (scale * scale);
    if (near(scale, right * std::numbers::ln2)) {
      scale = right * std::numbers::ln2;
      by = fmt::format("ln 2 / sqrt({}), as if an exponential in base 2 took scores in base e", c_.head_dim_qk);
    } else if (near(scale, right * std::numbers::log2e)) {
      scale = right * std::numbers::log2e;
      by = fmt::format("log2(e) / sqrt({}), as if an exponential in base e took scores in base 2", c_.head_dim_qk);
    } else if (square < kMost && is_root_of(std::llround(square))) {
      by = fmt::format("1 / sqrt({})", std::llround(square));
      scale = 1 / std::sqrt(std::round(square));
    }
    pass("scale_wrong", fmt::format("scores are scaled by {} instead of 1 / sqrt({})", by, c_.head_dim_qk),
         [scale](const DenseProblem&, Pass& pass) { pass.scale = scale; });
  }
};

}  // namespace

Hypotheses constant_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Constants(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
