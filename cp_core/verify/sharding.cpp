#include "cp_core/verify/sharding.h"

#include <limits>
#include <tuple>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace cp_pool::verify {

std::string sharding_fault(const Sharding& sharding, const Case& c, const SequenceLengths& lengths, int ranks) {
  if (const auto* const convention = std::get_if<Convention>(&sharding.rows)) {
    for (const auto& [valid, padded, replicated] :
         {std::tuple{&lengths.valid_q, &lengths.padded_q, lengths.replicated_q},
          std::tuple{&lengths.valid_kv, &lengths.padded_kv, lengths.replicated_kv}}) {
      std::string obstacle = convention_obstacle(*convention, c.layout, *valid, *padded, ranks, replicated);
      if (!obstacle.empty()) return obstacle;
    }
  }
  const Ownership owners = ownership_of(sharding, c.layout, lengths, ranks);
  for (const RowsByRank* const listed : {&owners.q, &owners.kv}) {
    if (listed->size() == static_cast<std::size_t>(ranks)) continue;
    return fmt::format("the rows of {} ranks are listed, and there are {}", listed->size(), ranks);
  }
  std::string fault = ownership_fault(owners.q, lengths.valid_q, c.layout, "q", lengths.replicated_q);
  if (!fault.empty()) return fault;
  return ownership_fault(owners.kv, lengths.valid_kv, c.layout, "kv", lengths.replicated_kv);
}

Ownership ownership_of(const Sharding& sharding, Layout layout, const SequenceLengths& lengths, int ranks) {
  if (const auto* const ownership = std::get_if<Ownership>(&sharding.rows)) return *ownership;
  const auto& convention = std::get<Convention>(sharding.rows);
  return {
      .q = rows_by_convention(convention, layout, lengths.valid_q, lengths.padded_q, ranks, lengths.replicated_q),
      .kv = rows_by_convention(convention, layout, lengths.valid_kv, lengths.padded_kv, ranks, lengths.replicated_kv)};
}

at::Tensor padding_values(at::IntArrayRef shape, PaddingFill fill, const at::TensorOptions& options) {
  switch (fill) {
    case PaddingFill::nan:
      return at::full(shape, std::numeric_limits<double>::quiet_NaN(), options);
    case PaddingFill::zeros:
      return at::zeros(shape, options);
    case PaddingFill::garbage:
      break;
  }
  // Whole numbers from -8 to 8, which every dtype can represent; neighbours differ.
  constexpr std::int64_t kStep = 7;
  constexpr std::int64_t kValues = 17;
  const at::Tensor values = at::arange(c10::multiply_integers(shape), options.dtype(at::kLong));
  return values.mul(kStep).remainder(kValues).sub(kValues / 2).to(options.dtype()).view(shape);
}

}  // namespace cp_pool::verify
