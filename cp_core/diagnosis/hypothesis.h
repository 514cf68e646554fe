// A known mistake, as a small change of the definition or of its results.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cp_core/diagnosis/model.h"
#include "cp_core/diagnosis/simulation.h"

namespace cp_pool::diagnosis {

class Bench;

struct Hypothesis {
  std::string id;    // of docs/diagnosis.md
  std::string says;  // what is wrong, as a sentence without its ranks and its full stop

  // One of these four. The first is tried in both passes, in the forward alone and in the backward alone.
  std::function<void(const World&, Pass&)> pass = {};
  std::function<void(Model&)> model = {};
  // Also changes magnitudes, and so must be made of linear steps.
  std::function<void(const World&, WholeResults&)> results = {};

  // Whether it is what the results show, by itself: which rows are wrong, and what they hold.
  std::function<bool(const Bench&)> shows = {};

  // The first thing that `model` changes.
  enum class Level { forward, backward, sums };
  Level level = Level::forward;

  bool of_mask = false;  // only which keys a query sees

  std::string backward_id = {};  // what it is in the backward alone, if that is another mistake
  std::string backward_says = {};
};

using Hypotheses = std::vector<Hypothesis>;

// Which results fail, by name: mistakes of single gradients are tried on these alone.
struct Symptoms {
  std::vector<std::string> failing;

  [[nodiscard]] bool fails(std::string_view name) const { return std::ranges::find(failing, name) != failing.end(); }
};

// The library, by subject. Those that a case cannot have are left out.
Hypotheses mask_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses row_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses ring_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses merge_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses scale_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses head_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses gradient_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses sink_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses bias_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses max_logit_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses empty_row_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses axis_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses overflow_hypotheses(const World& world, const Symptoms& symptoms);
Hypotheses precision_hypotheses(const World& world, const Symptoms& symptoms);

Hypotheses all_hypotheses(const World& world, const Symptoms& symptoms);

}  // namespace cp_pool::diagnosis
