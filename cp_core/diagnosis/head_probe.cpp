#include "cp_core/diagnosis/head_probe.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "cp_core/diagnosis/pair_text.h"

namespace cp_pool::diagnosis {
namespace {

using verify::CanonicalInputs;
using verify::Results;

// A head that makes up a smaller part of what is read counts as not read.
constexpr double kPartOfAHead = 1e-3;

// Sets 1 in element c of all rows of each head first + c.
void set_head_codes(at::Tensor& rows, std::int64_t first) {
  rows.zero_();
  const std::int64_t count = std::min(rows.size(2), rows.size(1) - first);
  for (std::int64_t c = 0; c < count; ++c) rows.select(1, first + c).select(1, c).fill_(1);
}

// Maps each set of key-value heads that some row read to the number of such rows and the first of them.
struct RowsThatRead {
  std::int64_t rows = 0;
  std::int64_t first = 0;
};
using ReadHeads = std::map<std::vector<std::int64_t>, RowsThatRead>;

// parts: fp64 [rows, kv_heads], the part of one query head's out that comes from each key-value head.
ReadHeads heads_read(const Prober& prober, const at::Tensor& parts) {
  ReadHeads read;
  const at::Tensor whole = parts.contiguous();
  const auto part = whole.accessor<double, 2>();
  for (std::int64_t i = 0; i < whole.size(0); ++i) {
    if (prober.grid().q.row(i).padding) continue;
    std::vector<std::int64_t> heads;
    bool is_number = true;
    for (std::int64_t g = 0; g < whole.size(1); ++g) {
      is_number = is_number && std::isfinite(part[i][g]);
      if (std::abs(part[i][g]) > kPartOfAHead) heads.push_back(g);
    }
    if (heads.empty() || !is_number) continue;
    RowsThatRead& rows = read.try_emplace(heads, RowsThatRead{.first = i}).first->second;
    ++rows.rows;
  }
  return read;
}

std::string heads_text(std::string_view noun, const std::vector<std::int64_t>& heads) {
  return fmt::format("{}{} {}", noun, heads.size() == 1 ? "" : "s", numbers_text(heads));
}

class HeadProbe {
 public:
  HeadProbe(Prober& prober, const AskedCase& asked)
      : prober_(prober), asked_(asked), heads_(asked.c.heads), kv_heads_(asked.c.kv_heads) {}

  HeadMapping ask(bool backward) {
    if (!ask_forward()) return std::move(mapping_);
    mapping_.asked = true;
    for (std::int64_t h = 0; h < heads_; ++h) read_head(h);
    if (backward && ask_backward()) read_gradients();
    return std::move(mapping_);
  }

 private:
  [[nodiscard]] std::int64_t expected(std::int64_t head) const { return head / (heads_ / kv_heads_); }

  bool ask_forward() {
    CanonicalInputs inputs = prober_.zeros(asked_);
    parts_ = at::zeros({prober_.grid().q.size(), heads_, kv_heads_}, at::kDouble);
    for (std::int64_t first = 0; first < kv_heads_; first += asked_.c.head_dim_v) {
      if (!prober_.has_time(Prober::Part::forward)) return false;
      set_head_codes(inputs.v, first);
      const Results results = prober_.ask(asked_, inputs, Prober::Part::forward);
      if (!results.out.defined()) return false;
      const std::int64_t count = std::min(asked_.c.head_dim_v, kv_heads_ - first);
      parts_.narrow(2, first, count).copy_(results.out.narrow(2, 0, count));
    }
    return true;
  }

  void read_head(std::int64_t head) {
    for (const auto& [read, rows] : heads_read(prober_, parts_.select(1, head))) {
      for (const std::int64_t kv_head : read) read_by_.insert({kv_head, head});
      if (read == std::vector<std::int64_t>{expected(head)}) continue;
      mapping_.wrong = true;
      std::string where;
      if (rows.rows < rows_with_keys(head)) {
        where = fmt::format(" in {} rows, beginning with {}", rows.rows,
                            queries_text(prober_.grid().q, {rows.first, rows.first}));
      }
      mapping_.notes.push_back(
          read.size() == 1
              ? fmt::format("query head {} read kv head {} instead of {}{}", head, read.front(), expected(head), where)
              : fmt::format("query head {} read {} instead of only kv head {}{}", head, heads_text("kv head", read),
                            expected(head), where));
    }
  }

  [[nodiscard]] std::int64_t rows_with_keys(std::int64_t head) const {
    std::int64_t rows = 0;
    for (const auto& [read, of_read] : heads_read(prober_, parts_.select(1, head))) rows += of_read.rows;
    return rows;
  }

  // Measures what each query head contributes to dv of each key-value head, summed over keys.
  bool ask_backward() {
    CanonicalInputs inputs = prober_.zeros(asked_);
    given_ = at::zeros({kv_heads_, heads_}, at::kDouble);
    for (std::int64_t first = 0; first < heads_; first += asked_.c.head_dim_v) {
      if (!prober_.has_time(Prober::Part::whole)) return false;
      set_head_codes(inputs.dout, first);
      prober_.clear_padding(inputs.dout);
      const Results results = prober_.ask(asked_, inputs, Prober::Part::whole);
      if (!results.dv.defined()) return false;
      const std::int64_t count = std::min(asked_.c.head_dim_v, heads_ - first);
      given_.narrow(1, first, count).copy_(valid_keys(results.dv).sum(0).narrow(1, 0, count));
    }
    return true;
  }

  [[nodiscard]] at::Tensor valid_keys(const at::Tensor& dv) const {
    at::Tensor valid = dv.clone();
    for (std::int64_t j = 0; j < dv.size(0); ++j) {
      if (prober_.grid().kv.row(j).padding) valid.select(0, j).zero_();
    }
    return valid;
  }

  void read_gradients() {
    const auto given = given_.accessor<double, 2>();
    for (std::int64_t g = 0; g < kv_heads_; ++g) {
      for (std::int64_t h = 0; h < heads_; ++h) {
        const bool read = read_by_.contains({g, h});
        if (!std::isfinite(given[g][h])) continue;
        const bool gave = std::abs(given[g][h]) > kPartOfAHead;
        if (read == gave) continue;
        mapping_.wrong = true;
        mapping_.notes.push_back(
            gave ? fmt::format("dv of kv head {} counts query head {}, which did not read this kv head", g, h)
                 : fmt::format("dv of kv head {} lacks query head {}, which read this kv head", g, h));
      }
    }
  }

  Prober& prober_;
  const AskedCase& asked_;
  std::int64_t heads_;
  std::int64_t kv_heads_;
  at::Tensor parts_;
  at::Tensor given_;
  std::set<std::pair<std::int64_t, std::int64_t>> read_by_;  // (kv head, query head that read it in some row)
  HeadMapping mapping_;
};

}  // namespace

HeadMapping ask_heads(Prober& prober, const AskedCase& asked, bool backward) {
  return HeadProbe(prober, asked).ask(backward);
}

}  // namespace cp_pool::diagnosis
