// Mistakes in which a tensor's memory is read in the wrong order: two axes exchanged, or strides ignored.
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/verify/sharding.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

// Returns the elements of [rows, heads, dim] in another order but in the same shape; undefined if the sizes do not
// allow it. Linear.
using Reorder = std::function<at::Tensor(const at::Tensor&)>;

struct Misreading {
  std::string says;
  Reorder read;
};

// Exchanges the axes of rows and heads in the memory of each of `parts` parts of [rows, heads, dim], in which heads
// form `blocks` blocks that stay together (0: each head is one). back: undoes the exchange.
Reorder rows_and_heads(std::int64_t parts, std::int64_t blocks, bool back) {
  return [=](const at::Tensor& x) -> at::Tensor {
    const std::int64_t count = blocks == 0 ? x.size(1) : blocks;
    if (count < 2 || x.size(1) % count != 0 || x.size(0) % parts != 0) return {};
    std::array sizes{parts, x.size(0) / parts, count, x.size(1) / count * x.size(2)};
    if (back) std::swap(sizes[1], sizes[2]);
    return x.contiguous().view(sizes).transpose(1, 2).reshape(x.sizes());
  };
}

class Axes : public Subject {
 public:
  Axes(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    // With NaN in padding, it is not known which rows would hold NaN after an exchange.
    const bool knows = !dense_.q_rows.poisoned.any().item<bool>() && !dense_.kv_rows.poisoned.any().item<bool>();
    for (const Misreading& misreading : knows ? misreadings() : std::vector<Misreading>()) {
      inputs(misreading);
      returned_lse(misreading);
      reordered(misreading);
    }
    if (c_.strided) strides();
  }

 private:
  [[nodiscard]] std::vector<Misreading> misreadings() const {
    std::vector<Misreading> all;
    const std::int64_t ranks = head_ranks(c_);
    const std::int64_t sequences = c_.layout == Layout::thd ? 1 : c_.batch;
    std::vector<std::int64_t> blocks{0};
    if (ranks > 1 && ranks != c_.heads) blocks.push_back(ranks);
    for (const bool back : {false, true}) {
      for (const std::int64_t count : blocks) {
        const std::string says =
            fmt::format("the axes of tokens and {} are exchanged", count == 0 ? "heads" : "blocks of heads");
        all.push_back({.says = says, .read = rows_and_heads(dense_.ranks, count, back)});
        if (sequences == 1) continue;
        all.push_back(
            {.says = says + " within each sequence", .read = rows_and_heads(dense_.ranks * sequences, count, back)});
      }
    }
    return all;
  }

  // Returns the order that a misreading causes, as indices into the flattened tensor; undefined if it changes nothing.
  static at::Tensor order_of(const Misreading& misreading, const at::Tensor& like) {
    const at::Tensor places = at::arange(like.numel(), at::kLong).view(like.sizes());
    const at::Tensor order = misreading.read(places);
    if (!order.defined() || order.equal(places)) return {};
    return order.flatten();
  }

  static at::Tensor in_order(const at::Tensor& x, const at::Tensor& order) {
    return x.contiguous().flatten().index_select(0, order).view(x.sizes());
  }

  // Misreads K and V in the forward, in the backward or in both. The gradients are returned either in
  // the order of the inputs' memory or in the order in which the inputs were misread.
  void inputs(const Misreading& misreading) {
    const at::Tensor k = order_of(misreading, dense_.k);
    const at::Tensor v = order_of(misreading, dense_.v);
    if (!k.defined() || !v.defined()) return;
    const std::string says = fmt::format("in K and V, {}", misreading.says);
    const auto misread = [k, v](const DenseProblem& dense, Pass& pass) {
      pass.k = in_order(dense.k, k);
      pass.v = in_order(dense.v, v);
    };
    pass("axes_exchanged", says, misread);
    model("axes_exchanged", says, [=](SimulatedStep& model) {
      for (Pass* const pass : {&model.forward, &model.backward}) misread(*model.dense, *pass);
      model.returned_gradients = [k, v](const DenseProblem&, Results& results) {
        results.dk = in_order(results.dk, k.argsort());
        results.dv = in_order(results.dv, v.argsort());
      };
    });
  }

  // The lse is returned in another order, and the gradients are right or follow from it.
  void returned_lse(const Misreading& misreading) {
    if (!symptoms_.fails("lse")) return;
    model("axes_exchanged", fmt::format("in lse, {}", misreading.says), [read = misreading.read](SimulatedStep& model) {
      model.returned = [read](const DenseProblem&, Results& results) {
        const at::Tensor other = read(results.lse);
        if (other.defined()) results.lse = other;
      };
    });
  }

  // Returns the failing results in another order.
  void reordered(const Misreading& misreading) {
    const std::vector<std::string> names = symptoms_.failing_of({"out", "lse", "dq", "dk", "dv"});
    if (names.empty()) return;
    each("axes_exchanged", fmt::format("in {}, {}", fmt::join(names, ", "), misreading.says), names,
         [read = misreading.read](const DenseProblem&, Member, const at::Tensor& result) {
           const at::Tensor other = read(result);
           return other.defined() ? other : result;
         });
  }

  // A strided input is the first half of the heads of a larger tensor; the other half holds the padding value. If it is
  // read as contiguous, every second row comes from the other half.
  struct Read {
    at::Tensor rows;
    at::Tensor poisoned;
  };
  static Read read_as_contiguous(const at::Tensor& x, const Side& side, const DenseProblem& dense) {
    const Case& c = dense.c();
    const at::Tensor with_nan = x.masked_fill(side.poisoned.view({-1, 1, 1}), verify::kNaN);
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < dense.ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const std::int64_t count = side.first[r + 1] - side.first[r];
      const std::int64_t sequences = c.layout == Layout::sbhd ? c.batch : 1;
      const auto in_memory = [&](const at::Tensor& packed, bool back) {
        const std::int64_t outer = back ? count / sequences : sequences;
        return packed.view({outer, count / outer, -1}).transpose(0, 1).reshape(packed.sizes());
      };
      const at::Tensor larger =
          verify::padding_values({count, 2, x.size(1), x.size(2)}, dense.observation->sharding.padding, x.options());
      larger.select(1, 0).copy_(in_memory(with_nan.narrow(0, side.first[r], count), false));
      parts.push_back(in_memory(larger.flatten(0, 1).narrow(0, 0, count).contiguous(), true));
    }
    const at::Tensor rows = at::cat(parts);
    return {.rows = rows.nan_to_num(0.0), .poisoned = rows.isnan().flatten(1).any(1)};
  }

  void strides() {
    model("strides_ignored",
          "q, k, v and dout, which are slices of larger tensors, are read as if they were contiguous",
          [](SimulatedStep& model) {
            model.needs_all_rows = true;
            const DenseProblem& dense = *model.dense;
            if (dense.q_rows.first.empty()) return;
            const Read q = read_as_contiguous(dense.q, dense.q_rows, dense);
            const Read k = read_as_contiguous(dense.k, dense.kv_rows, dense);
            for (Pass* const pass : {&model.forward, &model.backward}) {
              pass->q = q.rows;
              pass->k = k.rows;
              pass->v = read_as_contiguous(dense.v, dense.kv_rows, dense).rows;
              pass->q_poisoned = q.poisoned;
              pass->kv_poisoned = k.poisoned;
              if (dense.dout.defined()) pass->dout = read_as_contiguous(dense.dout, dense.q_rows, dense).rows;
            }
          });
  }
};

}  // namespace

Hypotheses axis_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Axes(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
