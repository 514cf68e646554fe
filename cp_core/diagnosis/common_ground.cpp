#include "cp_core/diagnosis/common_ground.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cp_pool::diagnosis {
namespace {

using verify::Results;

std::vector<std::int64_t> numbers_of(const at::Tensor& flags) {
  const at::Tensor found = flags.nonzero().flatten();
  const auto* const data = found.const_data_ptr<std::int64_t>();
  return {data, data + found.numel()};
}

// "3", "0, 2, 5" or "4..7".
std::string text_of(const std::vector<std::int64_t>& numbers) {
  const bool run =
      numbers.size() > 2 && numbers.back() - numbers.front() + 1 == static_cast<std::int64_t>(numbers.size());
  if (run) return fmt::format("{}..{}", numbers.front(), numbers.back());
  constexpr std::size_t kMost = 8;
  if (numbers.size() <= kMost) return fmt::format("{}", fmt::join(numbers, ", "));
  return fmt::format("{} and {} more", fmt::join(numbers.begin(), numbers.begin() + kMost, ", "),
                     numbers.size() - kMost);
}

std::string plural(const char* noun, std::size_t count) {
  return fmt::format("{}{}", noun, count == 1 ? "" : "s");
}

// Where one result is wrong.
struct Ground {
  const Given* given = nullptr;
  at::Tensor wrong;  // bool [rows, heads]
};

std::vector<Ground> grounds_of(const Bench& bench) {
  std::vector<Ground> grounds;
  for (const Given& given : bench.fits().given()) {
    const at::Tensor wrong = bench.fits().errors(given).gt(1.0);
    if (wrong.any().item<bool>()) grounds.push_back({.given = &given, .wrong = wrong});
  }
  return grounds;
}

const Side* side_of(const World& world, at::Tensor Results::* member) {
  if (member == &Results::out || member == &Results::lse || member == &Results::dq) return &world.q_rows;
  if (member == &Results::dk || member == &Results::dv) return &world.kv_rows;
  return nullptr;
}

std::string on_ranks(const World& world, const std::set<std::int64_t>& ranks) {
  if (static_cast<int>(ranks.size()) == world.ranks) return world.ranks == 1 ? "" : ", on all ranks";
  const std::vector<std::int64_t> numbers(ranks.begin(), ranks.end());
  return fmt::format(", on {} {} only", plural("rank", ranks.size()), text_of(numbers));
}

// Names the wrong heads; empty if all heads are wrong. wrong: bool [heads].
std::string in_heads(const at::Tensor& wrong) {
  const std::vector<std::int64_t> heads = numbers_of(wrong);
  const auto count = wrong.numel();
  if (count == 1 || static_cast<std::int64_t>(heads.size()) == count) return {};
  bool every_second = heads.size() > 1;
  for (std::size_t i = 1; i < heads.size(); ++i) every_second = every_second && heads[i] == heads[i - 1] + 2;
  every_second = every_second && 2 * static_cast<std::int64_t>(heads.size()) >= count;
  return fmt::format(", in {} {} of {}{}", plural("head", heads.size()), text_of(heads), count,
                     every_second ? " (every second)" : "");
}

// Names properties that all wrong rows have. Correct rows may have them too. wrong: bool, one per row.
std::string in_rows(const Side& side, const at::Tensor& wrong) {
  const auto all = [&](const at::Tensor& flags) { return !wrong.logical_and(flags.logical_not()).any().item<bool>(); };
  std::vector<std::string> parts;
  if (all(side.valid.logical_not())) return ", in rows of padding only";
  for (const std::int64_t half : {0, 1}) {
    if (all(side.half.eq(half))) {
      parts.emplace_back(half == 0 ? "the first chunk of each rank" : "the second chunk of each rank");
    }
  }
  const at::Tensor sequences = side.sequence.masked_select(wrong);
  const auto first = sequences.min().item<std::int64_t>();
  const bool one_sequence = first == sequences.max().item<std::int64_t>();
  if (one_sequence && side.sequence.max().item<std::int64_t>() > 0) parts.push_back(fmt::format("sequence {}", first));
  const at::Tensor positions = side.position.masked_select(wrong);
  const auto low = positions.min().item<std::int64_t>();
  const auto high = positions.max().item<std::int64_t>();
  if (low > side.position.min().item<std::int64_t>() || high < side.position.max().item<std::int64_t>()) {
    parts.push_back(low == high ? fmt::format("position {}", low) : fmt::format("positions {}..{}", low, high));
  }
  const auto rows = wrong.sum().item<std::int64_t>();
  const auto valid = side.valid.sum().item<std::int64_t>();
  if (parts.empty()) return rows < valid ? fmt::format(", in {} of {} rows", rows, valid) : "";
  return fmt::format(", in {} rows of {}", rows, fmt::join(parts, ", "));
}

void add_ranks(const Ground& ground, std::set<std::int64_t>& ranks) {
  for (const std::int64_t row : numbers_of(ground.wrong.any(-1)))
    ranks.insert(ground.given->rank[row].item<std::int64_t>());
}

}  // namespace

std::string common_ground(const Bench& bench) {
  const World& world = bench.world();
  const std::vector<Ground> grounds = grounds_of(bench);
  if (grounds.empty()) return {};
  std::vector<std::string> names;
  std::set<std::int64_t> ranks;
  at::Tensor q_heads = at::zeros({world.c().heads}, at::kBool);
  at::Tensor kv_heads = at::zeros({world.c().kv_heads}, at::kBool);
  at::Tensor q_rows = at::zeros_like(world.q_rows.valid);
  at::Tensor kv_rows = at::zeros_like(world.kv_rows.valid);
  for (const Ground& ground : grounds) {
    names.emplace_back(ground.given->name);
    add_ranks(ground, ranks);
    const at::Tensor heads = ground.wrong.any(0);
    const Side* const side = side_of(world, ground.given->member);
    if (side == &world.kv_rows) {
      kv_heads.logical_or_(heads);
      kv_rows.logical_or_(ground.wrong.any(-1));
    } else if (heads.numel() == q_heads.numel()) {
      q_heads.logical_or_(heads);
      if (side != nullptr) q_rows.logical_or_(ground.wrong.any(-1));
    }
  }
  const bool has_q = q_heads.any().item<bool>();
  std::string text =
      fmt::format("{} {} wrong{}", fmt::join(names, ", "), names.size() == 1 ? "is" : "are", on_ranks(world, ranks));
  text += in_heads(has_q ? q_heads : kv_heads);
  if (q_rows.any().item<bool>()) {
    text += in_rows(world.q_rows, q_rows);
  } else if (kv_rows.any().item<bool>()) {
    text += in_rows(world.kv_rows, kv_rows);
  }
  return text;
}

std::vector<std::string> grounds_by_tensor(const Bench& bench) {
  std::vector<std::string> sentences;
  for (const Ground& ground : grounds_of(bench)) {
    std::set<std::int64_t> ranks;
    add_ranks(ground, ranks);
    const Side* const side = side_of(bench.world(), ground.given->member);
    sentences.push_back(fmt::format("{} is wrong{}{}{}", ground.given->name, on_ranks(bench.world(), ranks),
                                    in_heads(ground.wrong.any(0)),
                                    side == nullptr ? "" : in_rows(*side, ground.wrong.any(-1))));
  }
  return sentences;
}

}  // namespace cp_pool::diagnosis
