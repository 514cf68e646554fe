// A known mistake, as a small change of the definition or of its results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cp_core/diagnosis/model.h"
#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {

struct Hypothesis {
  std::string id;    // of docs/diagnosis.md
  std::string says;  // what is wrong, as a sentence without its ranks and its full stop

  // One of these three. The first is tried in both passes, in the forward alone and in the backward alone.
  std::function<void(const World&, Pass&)> pass = {};
  std::function<void(Model&)> model = {};
  // Also changes magnitudes, and so must be made of linear steps.
  std::function<void(const World&, WholeResults&)> results = {};

  // The first thing that `model` changes.
  enum class Level { forward, backward, sums };
  Level level = Level::forward;

  std::string backward_id = {};    // what it is in the backward alone, if that is another mistake
  std::string backward_says = {};
};

using Hypotheses = std::vector<Hypothesis>;

// The library, by subject. Those of a case that cannot have the mistake are left out.
Hypotheses mask_hypotheses(const World& world);

Hypotheses all_hypotheses(const World& world);

}  // namespace cp_pool::diagnosis
