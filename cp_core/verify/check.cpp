#include "cp_core/verify/check.h"

#include <cmath>
#include <limits>
#include <string>

#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cp_core/no_autograd.h"

namespace cp_pool::verify {
namespace {

// By chance, one fp16 number in eight is a bf16 number. So many in a row are none.
constexpr std::int64_t kFewestFp16Values = 64;

// Marks the check as failed. Only the first fault sets the message.
void fail(Check& check, const std::string& message) {
  if (check.ok) check.message = message;
  check.ok = false;
}

// Returns how many rows are wrong. rows_at_fault: bool [rows, heads].
std::int64_t count_rows(const at::Tensor& rows_at_fault) {
  return rows_at_fault.sum().item<std::int64_t>();
}

class TensorCheck {
 public:
  TensorCheck(const ExpectedTensor& expected, const RankRows& rows, const at::Tensor& actual, const CheckRules& rules)
      : expected_(expected),
        rows_(rows),
        rules_(rules),
        is_fp16_(actual.scalar_type() == at::kHalf),
        may_be_empty_(expected.name.ends_with("lse") || expected.name == "max_logit"),
        whole_(row_part(actual, expected.part)) {
    check_.tensor = expected.name;
  }

  Check run() {
    if (rules_.judges_padding) check_padding();
    actual_ = whole_.index_select(0, rows_.valid_rows()).to(at::kDouble);
    value_ = row_part(expected_.value, expected_.part).index_select(0, rows_.canonical_rows());
    if (actual_.numel() > 0) measure();
    return std::move(check_);
  }

 private:
  void check_padding() {
    const at::Tensor padding = whole_.index_select(0, rows_.padding_rows());
    if (padding.numel() == 0) return;
    const double filler = may_be_empty_ ? -std::numeric_limits<double>::infinity() : 0.0;
    const at::Tensor at_fault = padding.ne(filler).any(-1);
    const auto count = count_rows(at_fault);
    if (count == 0) return;
    fail(check_, fmt::format("padding is not {} in {} rows", may_be_empty_ ? "-inf" : "zero", count));
    const auto first = at_fault.reshape({-1}).nonzero().select(0, 0).item<std::int64_t>();
    const auto heads = padding.size(1);
    locate(rows_.padding_rows()[first / heads].item<std::int64_t>(), first % heads);
  }

  void check_non_finite() {
    report_rows(actual_.isnan().any(-1), "NaN in {} rows");
    const at::Tensor differs = actual_.ne(value_);
    report_rows(actual_.isinf().logical_and(differs).any(-1), "infinite in {} rows where the reference is not");
    report_rows(value_.isinf().logical_and(differs).any(-1), "finite in {} rows that should be -inf");
  }

  void report_rows(const at::Tensor& at_fault, const char* format) {
    const auto count = count_rows(at_fault);
    if (count == 0) return;
    if (check_.ok) {
      const auto first = at_fault.reshape({-1}).nonzero().select(0, 0).item<std::int64_t>();
      locate_valid(first);
    }
    fail(check_, fmt::format(fmt::runtime(format), count));
  }

  void measure() {
    const at::Tensor difference = actual_.sub(value_).abs_();
    if (may_be_empty_) difference.masked_fill_(actual_.eq(value_), 0.0);
    const at::Tensor error = difference.square().mean(-1).sqrt_().reshape({-1});
    at::Tensor bound = expected_.bound.index_select(0, rows_.canonical_rows()).reshape({-1});
    if (rules_.bound_factor != 1) bound = bound.mul(rules_.bound_factor);
    const at::Tensor baseline = expected_.baseline_error.index_select(0, rows_.canonical_rows()).reshape({-1});
    // A bound of 0 demands exactness: any error is infinitely far beyond it.
    const at::Tensor excess = at::where(error.eq(0.0), 0.0, error.div(bound));
    const at::Tensor worst = excess.argmax();
    // All figures are read in one transfer, since each read from a device waits for it.
    const at::Tensor figures =
        at::stack({worst.to(at::kDouble), difference.max(), error.square().mean().sqrt(), error.take(worst),
                   bound.take(worst), baseline.take(worst), error.le(bound).logical_not_().sum().to(at::kDouble)})
            .cpu();
    const auto figure = figures.accessor<double, 1>();
    check_.max_abs = figure[1];
    check_.rms = figure[2];
    check_.error = figure[3];
    check_.bound = figure[4];
    check_.baseline = figure[5];
    if (!std::isfinite(check_.max_abs)) check_non_finite();
    if (check_.worst_index.empty()) locate_valid(static_cast<std::int64_t>(figure[0]));
    if (!check_.ok) return;
    if (const double over = figure[6]; over > 0) {
      fail(check_, fmt::format("error beyond the bound in {:.0f} of {} rows{}", over, error.numel(), needs()));
    }
    check_ceiling(difference);
    check_untouched();
    if (is_fp16_ && rules_.judges_bits) check_fp16_bits();
  }

  // Says how many times the baseline's error the worst row needs, given bound = factor * (kAllowedBaselines * baseline
  // + floor). Empty if that row's baseline is exact.
  [[nodiscard]] std::string needs() const {
    const double allowed = kAllowedBaselines * rules_.bound_factor;
    const double floor = check_.bound - allowed * check_.baseline;
    const double needed = (check_.error - floor) / check_.baseline;
    if (!std::isfinite(needed)) return {};
    return fmt::format("; the worst needs {:.3g} x baseline, allowed {:g}", needed, allowed);
  }

  void check_ceiling(const at::Tensor& difference) {
    const double ceiling = expected_.ceiling() * rules_.bound_factor;
    if (ceiling == 0 || check_.max_abs <= ceiling) return;
    report_rows(difference.gt(value_.abs().add_(1.0).mul_(ceiling)).any(-1),
                fmt::format("beyond the fixed tolerance {:g} in {{}} rows", ceiling).c_str());
  }

  void check_untouched() {
    if (!expected_.untouched.defined()) return;
    const at::Tensor untouched = expected_.untouched.index_select(0, rows_.canonical_rows());
    report_rows(actual_.ne(0.0).logical_and(untouched).any(-1), "not zero where nothing contributes in {} rows");
  }

  // Fails if an fp16 result has bf16 values only, though the reference has many others. The bounds do not see that: the
  // lost bits are below the error of fp16 probabilities. Below 2^-14, fp16 itself has fewer bits.
  void check_fp16_bits() {
    const auto needs_fp16 = [](const at::Tensor& x) {
      return x.ne(x.to(at::kBFloat16).to(at::kDouble)).logical_and_(x.abs().ge(0x1p-14));
    };
    const at::Tensor flat = actual_.reshape({-1});
    for (std::int64_t first = 0, count = kFewestFp16Values; first < flat.numel();
         first += count, count = flat.numel()) {
      if (needs_fp16(flat.slice(0, first, first + count)).any().item<bool>()) return;
    }
    if (needs_fp16(value_.to(at::kHalf).to(at::kDouble)).sum().item<std::int64_t>() < kFewestFp16Values) return;
    fail(check_, "every value is a bf16 number: fp16 was converted to bf16 and back");
  }

  void locate_valid(std::int64_t flat) {
    const auto heads = actual_.size(1);
    locate(rows_.valid_rows()[flat / heads].item<std::int64_t>(), flat % heads);
  }

  void locate(std::int64_t packed_row, std::int64_t head) {
    const LocalRow& row = rows_.rows()[static_cast<std::size_t>(packed_row)];
    check_.worst_index = {row.sequence, row.position, head};
  }

  const ExpectedTensor& expected_;
  const RankRows& rows_;
  const CheckRules& rules_;
  bool is_fp16_;
  bool may_be_empty_;  // -inf where no key is seen, as in the reference
  at::Tensor whole_;   // the part of the rank's result that is judged, padding included
  at::Tensor actual_;  // its valid rows in fp64
  at::Tensor value_;
  Check check_;
};

}  // namespace

Check check_tensor(const ExpectedTensor& expected, const RankRows& rows, const at::Tensor& actual,
                   const CheckRules& rules) {
  const NoAutograd no_autograd;
  const std::vector<std::int64_t> wanted{rows.count(), expected.value.size(1), expected.value.size(2)};
  if (actual.sizes() == wanted) return TensorCheck(expected, rows, actual, rules).run();
  return failed_check(expected.name, fmt::format("shape [{}] instead of [{}]", fmt::join(actual.sizes(), ", "),
                                                 fmt::join(wanted, ", ")));
}

Check failed_check(std::string_view tensor, const std::string& message) {
  Check check;
  check.tensor = tensor;
  check.max_abs = check.rms = check.error = check.bound = check.baseline = kNaN;
  fail(check, message);
  return check;
}

}  // namespace cp_pool::verify
