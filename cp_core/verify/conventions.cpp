#include "cp_core/verify/conventions.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "cases/lengths.h"
#include "cases/parse_number.h"

namespace cp_pool::verify {
namespace {

constexpr std::array<std::pair<ConventionKind, std::string_view>, 7> kKindNames{
    {{ConventionKind::dual_chunk, "dual_chunk"},
     {ConventionKind::dual_chunk_pack, "dual_chunk_pack"},
     {ConventionKind::contiguous, "contiguous"},
     {ConventionKind::contiguous_pack, "contiguous_pack"},
     {ConventionKind::striped, "striped"},
     {ConventionKind::paged, "paged"},
     {ConventionKind::dual_chunk_ulysses, "dual_chunk_ulysses"}}};

std::string_view name_of(ConventionKind kind) {
  return std::ranges::find(kKindNames, kind, &std::pair<ConventionKind, std::string_view>::first)->second;
}

std::optional<std::int64_t> positive_number(std::string_view text) {
  const auto value = parse_number<std::int64_t>(text);
  return value > 0 ? value : std::nullopt;
}

bool is_over_pack(ConventionKind kind) {
  return kind == ConventionKind::dual_chunk_pack || kind == ConventionKind::contiguous_pack ||
         kind == ConventionKind::striped;
}

bool has_stripes(ConventionKind kind) {
  return kind == ConventionKind::striped || kind == ConventionKind::paged;
}

// Returns the lengths of the packs.
std::vector<std::int64_t> packs_of(ConventionKind kind, Layout layout, const std::vector<std::int64_t>& padded) {
  if (layout != Layout::thd || !is_over_pack(kind)) return padded;
  std::int64_t total = 0;
  for (const std::int64_t length : padded) total += length;
  return {total};
}

// Returns the number of equal parts that a pack is cut into; its length must be a multiple of it.
std::int64_t parts_of(const Convention& convention, int ranks) {
  switch (convention.kind) {
    case ConventionKind::dual_chunk:
    case ConventionKind::dual_chunk_pack:
      return std::int64_t{2} * ranks;
    case ConventionKind::contiguous:
    case ConventionKind::contiguous_pack:
      return ranks;
    case ConventionKind::striped:
      return convention.stripe * ranks;
    case ConventionKind::paged:
      return 1;
    case ConventionKind::dual_chunk_ulysses:
      return std::int64_t{2} * ranks;  // then the rows of a chunk divide by the ranks of a Ulysses group too
  }
  throw std::logic_error("unknown convention");
}

void append(std::vector<std::int64_t>& rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) rows.push_back(row);
}

std::vector<std::int64_t> dual_chunk_rows(std::int64_t length, int ranks, int rank) {
  const std::int64_t chunk = length / (std::int64_t{2} * ranks);
  const std::int64_t late = std::int64_t{2} * ranks - 1 - rank;
  std::vector<std::int64_t> rows;
  append(rows, rank * chunk, (rank + 1) * chunk);
  append(rows, late * chunk, (late + 1) * chunk);
  return rows;
}

// Returns the rows of a pack of this length that the rank holds, in the rank's order.
std::vector<std::int64_t> rows_of_pack(const Convention& convention, std::int64_t length, int ranks, int rank) {
  std::vector<std::int64_t> rows;
  switch (convention.kind) {
    case ConventionKind::dual_chunk:
    case ConventionKind::dual_chunk_pack:
      return dual_chunk_rows(length, ranks, rank);
    case ConventionKind::contiguous:
    case ConventionKind::contiguous_pack:
      append(rows, rank * (length / ranks), (rank + 1) * (length / ranks));
      return rows;
    case ConventionKind::striped:
    case ConventionKind::paged:
      for (std::int64_t first = rank * convention.stripe; first < length; first += convention.stripe * ranks) {
        append(rows, first, std::min(first + convention.stripe, length));
      }
      return rows;
    case ConventionKind::dual_chunk_ulysses: {
      const int ulysses = ranks / convention.ring;
      const int of_ring = convention.ulysses_inner ? rank / ulysses : rank % convention.ring;
      const int of_ulysses = convention.ulysses_inner ? rank % ulysses : rank / convention.ring;
      const std::vector<std::int64_t> ring_rows = dual_chunk_rows(length, convention.ring, of_ring);
      const std::int64_t count = length / ranks;
      const auto first = ring_rows.begin() + of_ulysses * count;
      return {first, first + count};
    }
  }
  throw std::logic_error("unknown convention");
}

// Returns the number of padded tokens of each sequence that are not replicated.
std::vector<std::int64_t> cut_lengths(const std::vector<std::int64_t>& valid, const std::vector<std::int64_t>& padded,
                                      std::int64_t replicated) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(padded.size());
  for (std::size_t b = 0; b < padded.size(); ++b) {
    lengths.push_back(padded[b] - replicated_tokens(replicated, valid[b]));
  }
  return lengths;
}

// All rows of the padded sequences, sequence by sequence.
struct PaddedRows {
  std::vector<LocalRow> replicated;
  std::vector<LocalRow> cut;
};

PaddedRows padded_rows(const std::vector<std::int64_t>& valid, const std::vector<std::int64_t>& padded,
                       std::int64_t replicated) {
  PaddedRows rows;
  std::int64_t first = 0;  // canonical row of the sequence's first token
  for (std::size_t b = 0; b < padded.size(); ++b) {
    for (std::int64_t position = 0; position < padded[b]; ++position) {
      auto& of_kind = position < replicated_tokens(replicated, valid[b]) ? rows.replicated : rows.cut;
      of_kind.push_back({.sequence = static_cast<std::int64_t>(b),
                         .position = position,
                         .canonical = position < valid[b] ? first + position : -1});
    }
    first += valid[b];
  }
  return rows;
}

// Merges rows such that the replicated rows of each sequence come before its others. Both arguments are sorted by
// sequence, since every convention takes the rows of a pack in ascending order.
std::vector<LocalRow> merged(const std::vector<LocalRow>& replicated, const std::vector<LocalRow>& own) {
  std::vector<LocalRow> rows(replicated.size() + own.size());
  std::ranges::merge(replicated, own, rows.begin(), {}, &LocalRow::sequence, &LocalRow::sequence);
  return rows;
}

}  // namespace

std::optional<Convention> parse_convention(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const auto known = std::ranges::find(kKindNames, words.front(), &std::pair<ConventionKind, std::string_view>::second);
  if (known == kKindNames.end()) return std::nullopt;
  Convention convention{.kind = known->first};
  const bool has_number = words.size() > 1;
  const auto number = has_number ? positive_number(words[1]) : std::nullopt;
  if (has_number && !number) return std::nullopt;
  if (has_stripes(convention.kind) && words.size() <= 2) {
    convention.stripe = number.value_or(1);
    return convention;
  }
  if (convention.kind == ConventionKind::dual_chunk_ulysses && number && words.size() <= 3) {
    convention.ring = static_cast<int>(*number);
    convention.ulysses_inner = words.size() == 2;
    if (words.size() == 3 && words[2] != "outer") return std::nullopt;
    return convention;
  }
  if (has_number || convention.kind == ConventionKind::dual_chunk_ulysses) return std::nullopt;
  return convention;
}

std::string to_string(const Convention& convention) {
  std::string text(name_of(convention.kind));
  if (has_stripes(convention.kind) && convention.stripe != 1) {
    text += fmt::format(":{}", convention.stripe);
  }
  if (convention.kind == ConventionKind::dual_chunk_ulysses) {
    text += fmt::format(":{}{}", convention.ring, convention.ulysses_inner ? "" : ":outer");
  }
  return text;
}

std::string convention_obstacle(const Convention& convention, Layout layout, const std::vector<std::int64_t>& valid,
                                const std::vector<std::int64_t>& padded, int ranks, std::int64_t replicated) {
  if (convention.kind == ConventionKind::dual_chunk_ulysses && ranks % convention.ring != 0) {
    return fmt::format("{}: {} ranks do not divide into rings of {}", to_string(convention), ranks, convention.ring);
  }
  const std::int64_t parts = parts_of(convention, ranks);
  for (const std::int64_t length : packs_of(convention.kind, layout, cut_lengths(valid, padded, replicated))) {
    if (length % parts == 0) continue;
    return fmt::format("{}: {} rows do not divide into {} {}", to_string(convention), length, parts,
                       convention.kind == ConventionKind::striped ? "rows of stripes" : "parts");
  }
  return {};
}

RowsByRank rows_by_convention(const Convention& convention, Layout layout, const std::vector<std::int64_t>& valid,
                              const std::vector<std::int64_t>& padded, int ranks, std::int64_t replicated) {
  const PaddedRows all = padded_rows(valid, padded, replicated);
  const std::vector<std::int64_t> packs = packs_of(convention.kind, layout, cut_lengths(valid, padded, replicated));
  RowsByRank by_rank(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<LocalRow> own;
    std::int64_t first = 0;
    for (const std::int64_t length : packs) {
      for (const std::int64_t row : rows_of_pack(convention, length, ranks, rank)) {
        own.push_back(all.cut[static_cast<std::size_t>(first + row)]);
      }
      first += length;
    }
    by_rank[static_cast<std::size_t>(rank)] = merged(all.replicated, own);
  }
  return by_rank;
}

}  // namespace cp_pool::verify
