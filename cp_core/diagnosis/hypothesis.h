// A hypothesis is a known mistake, written as a small change of the definition of attention or of its results.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cp_core/diagnosis/fit.h"
#include "cp_core/diagnosis/simulated_step.h"

namespace cp_pool::diagnosis {

class HypothesisCheck;
struct MaskRule;

struct Hypothesis {
  std::string id;    // as docs/diagnosis.md lists it
  std::string says;  // what is wrong, as a sentence that names no ranks and has no full stop

  // Exactly one of the next four functions is set.
  // `pass` is tried in both passes, in the forward only and in the backward only.
  std::function<void(const DenseProblem&, Pass&)> pass = {};
  std::function<void(SimulatedStep&)> model = {};
  // Is applied to magnitudes too, and so must be linear.
  std::function<void(const DenseProblem&, WholeResults&)> results = {};

  // Decides without a simulation whether the results show the mistake: by which rows are wrong, and what they hold.
  std::function<bool(const HypothesisCheck&)> shows = {};

  // The first stage of the computation that `model` changes.
  enum class Level { forward, backward, sums };
  Level level = Level::forward;

  bool of_mask = false;  // is only about which keys a query sees

  std::string backward_id = {};  // the id if it is made in the backward only; empty: `id`
};

using Hypotheses = std::vector<Hypothesis>;

// What is known of the failure before any hypothesis is tried.
struct Symptoms {
  // The names of the results that fail. A mistake in a single gradient is tried only if that gradient is among them.
  std::vector<std::string> failing;
  // Of those that are everywhere the correct result times a number, or plus one, of verify::kResults.
  std::map<std::string, Constant> constants = {};
  bool constants_alone = false;  // all failing results are
  bool takes_windows = true;     // the implementation takes cases with a window, and so can get a window of -1 wrong

  [[nodiscard]] bool fails(std::string_view name) const { return std::ranges::find(failing, name) != failing.end(); }
  // Those of these results that fail.
  [[nodiscard]] std::vector<std::string> failing_of(std::vector<std::string> names) const {
    std::erase_if(names, [this](const std::string& name) { return !fails(name); });
    return names;
  }
};

// The frame of a class whose constructor collects the hypotheses of one file.
class Subject {
 public:
  Subject(const DenseProblem& dense, const Symptoms& symptoms) : dense_(dense), c_(dense.c()), symptoms_(symptoms) {}
  [[nodiscard]] Hypotheses all() && { return std::move(all_); }

 protected:
  // Each adds a hypothesis that has this member, and returns it.
  Hypothesis& pass(std::string id, std::string says, std::function<void(const DenseProblem&, Pass&)> change) {
    return all_.emplace_back(Hypothesis{.id = std::move(id), .says = std::move(says), .pass = std::move(change)});
  }
  Hypothesis& model(std::string id, std::string says, std::function<void(SimulatedStep&)> change,
                    Hypothesis::Level level = Hypothesis::Level::forward) {
    return all_.emplace_back(
        Hypothesis{.id = std::move(id), .says = std::move(says), .model = std::move(change), .level = level});
  }
  Hypothesis& backward(std::string id, std::string says, std::function<void(SimulatedStep&)> change) {
    return model(std::move(id), std::move(says), std::move(change), Hypothesis::Level::backward);
  }
  Hypothesis& sums(std::string id, std::string says, std::function<void(SimulatedStep&)> change) {
    return model(std::move(id), std::move(says), std::move(change), Hypothesis::Level::sums);
  }
  Hypothesis& shows(std::string id, std::string says, std::function<bool(const HypothesisCheck&)> are_so) {
    return all_.emplace_back(Hypothesis{.id = std::move(id), .says = std::move(says), .shows = std::move(are_so)});
  }
  // The mask is this change of the definition's (mask_rule.cpp).
  void mask(std::string id, std::string says, std::function<void(MaskRule&)> change);
  Hypothesis& results(std::string id, std::string says,
                      std::function<void(const DenseProblem&, WholeResults&)> change) {
    return all_.emplace_back(Hypothesis{.id = std::move(id), .says = std::move(says), .results = std::move(change)});
  }

  // Each of these results is what `change` makes of it, as far as the case has it.
  using Member = at::Tensor WholeResults::*;
  void each(std::string id, std::string says, const std::vector<std::string>& names,
            std::function<at::Tensor(const DenseProblem&, Member, const at::Tensor&)> change) {
    results(std::move(id), std::move(says),
            [names, change = std::move(change)](const DenseProblem& dense, WholeResults& results) {
              for (const auto& [name, member] : verify::kResults) {
                at::Tensor& value = results.*member;
                const bool is_one = std::ranges::find(names, name) != names.end();
                if (is_one && value.defined()) value = change(dense, member, value);
              }
            });
  }

  const DenseProblem& dense_;
  const Case& c_;
  const Symptoms& symptoms_;
  Hypotheses all_;
};

// The library of hypotheses, by subject. Hypotheses that cannot apply to a case are left out.
Hypotheses mask_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses row_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses replicated_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses ring_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses merge_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses head_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses constant_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses gradient_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses softmax_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses bias_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses empty_row_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses axis_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);
Hypotheses precision_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);

Hypotheses all_hypotheses(const DenseProblem& dense, const Symptoms& symptoms);

}  // namespace cp_pool::diagnosis
