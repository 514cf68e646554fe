// Mistakes in which attention takes a rank's rows for other rows than those that the rank holds.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/verify/conventions.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Convention;
using verify::ConventionKind;
using verify::LocalRow;
using verify::RowsByRank;

using Lengths = std::vector<std::int64_t>;
// Maps the rows of each rank to the rows that they are taken for. nullopt: the mistake is not possible here.
using Belief =
    std::function<std::optional<RowsByRank>(const RowsByRank& rows, const Lengths& valid, const Lengths& padded)>;

constexpr LocalRow kNoRow{.sequence = 0, .position = -1, .canonical = -1};

at::Tensor column_of(const RowsByRank& rows, std::int64_t LocalRow::* member) {
  Lengths values;
  for (const auto& of_rank : rows) {
    for (const LocalRow& row : of_rank) values.push_back(row.*member);
  }
  return index_tensor(values);
}

class Rows : public Subject {
 public:
  Rows(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    if (may_have_two_chunks()) {
      add("chunks_exchanged", "each of a rank's two chunks is taken for the other chunk", halves_exchanged);
      add("chunks_not_mirrored", "the second chunk of rank r is taken for chunk n + r instead of chunk 2n - 1 - r",
          not_mirrored);
    }
    of_another_rank();
    conventions();
    gathered();
    valid_offsets();
  }

 private:
  // Whether a rank may hold two chunks of a sequence. Of rows that an implementation lists itself, that is not known.
  [[nodiscard]] bool may_have_two_chunks() const {
    const auto* const convention = std::get_if<Convention>(&dense_.observation->sharding.rows);
    constexpr std::array kOfOtherParts{ConventionKind::contiguous, ConventionKind::contiguous_pack,
                                       ConventionKind::striped, ConventionKind::paged};
    return convention == nullptr || std::ranges::find(kOfOtherParts, convention->kind) == kOfOtherParts.end();
  }

  static std::optional<RowsByRank> halves_exchanged(const RowsByRank& rows, const Lengths&, const Lengths&) {
    RowsByRank believed = rows;
    for (auto& own : believed) {
      for (auto begin = own.begin(); begin != own.end();) {
        const auto end =
            std::find_if(begin, own.end(), [&](const LocalRow& row) { return row.sequence != begin->sequence; });
        if ((end - begin) % 2 != 0) return std::nullopt;
        std::rotate(begin, begin + (end - begin) / 2, end);
        begin = end;
      }
    }
    return believed;
  }

  static std::optional<RowsByRank> not_mirrored(const RowsByRank& rows, const Lengths& valid, const Lengths& padded) {
    const auto ranks = static_cast<std::int64_t>(rows.size());
    RowsByRank believed(rows.size());
    for (std::size_t b = 0; b < padded.size(); ++b) {
      const std::int64_t chunk = padded[b] / (2 * ranks);
      for (std::int64_t position = 0; position < 2 * ranks * chunk; ++position) {
        believed[static_cast<std::size_t>(position / chunk % ranks)].push_back(
            {.sequence = static_cast<std::int64_t>(b),
             .position = position,
             .canonical = position < valid[b] ? 0 : -1});
      }
    }
    return believed;
  }

  void of_another_rank() {
    const int n = dense_.ranks;
    const auto takes = [&](const char* says, const std::function<int(int)>& other) {
      add("rows_of_another_rank", says, [=](const RowsByRank& rows, const auto&, const auto&) {
        RowsByRank believed;
        for (int rank = 0; rank < n; ++rank) believed.push_back(rows[static_cast<std::size_t>(other(rank))]);
        return believed;
      });
    };
    takes("rank r takes its rows for those of rank n - 1 - r", [n](int r) { return n - 1 - r; });
    takes("a rank takes its rows for those of the next rank", [n](int r) { return modulo(r + 1, n); });
    takes("a rank takes its rows for those of the previous rank", [n](int r) { return modulo(r - 1, n); });
    takes("every rank takes its rows for those of rank 0", [](int) { return 0; });
  }

  void conventions() {
    std::vector<Convention> known{{.kind = ConventionKind::dual_chunk}, {.kind = ConventionKind::contiguous}};
    if (c_.layout == Layout::thd && c_.batch > 1) {
      known.push_back({.kind = ConventionKind::dual_chunk_pack});
      known.push_back({.kind = ConventionKind::contiguous_pack});
    }
    constexpr std::int64_t kLargestStripe = 128;
    for (std::int64_t stripe = 1; stripe <= kLargestStripe; stripe *= 2) {
      known.push_back({.kind = ConventionKind::striped, .stripe = stripe});
    }
    for (int ring = 2; ring < dense_.ranks; ++ring) {
      if (dense_.ranks % ring != 0) continue;
      for (const bool inner : {true, false}) {
        known.push_back({.kind = ConventionKind::dual_chunk_ulysses, .ring = ring, .ulysses_inner = inner});
      }
    }
    for (const Convention& convention : known) {
      const std::string name = verify::to_string(convention);
      add("sharding_" + name.substr(0, name.find(':')),
          fmt::format("attention assumes that rows are sharded by the convention {}", name),
          [convention, layout = c_.layout, ranks = dense_.ranks, replicated = lengths_.replicated_kv](
              const RowsByRank&, const Lengths& valid, const Lengths& padded) -> std::optional<RowsByRank> {
            if (!verify::convention_obstacle(convention, layout, valid, padded, ranks, replicated).empty())
              return std::nullopt;
            return verify::rows_by_convention(convention, layout, valid, padded, ranks, replicated);
          });
    }
  }

  // The places that the rows of both sides are taken for; nullopt if they are their own, or not possible.
  [[nodiscard]] std::optional<Places> places_by(const Belief& belief) const {
    const verify::Ownership& right = dense_.owners;
    const auto q = c_.all_queries ? right.q : belief(right.q, lengths_.valid_q, lengths_.padded_q);
    const auto kv = belief(right.kv, lengths_.valid_kv, lengths_.padded_kv);
    const auto count = &std::vector<LocalRow>::size;
    if (!q || !kv || !std::ranges::equal(*q, right.q, {}, count, count) ||
        !std::ranges::equal(*kv, right.kv, {}, count, count)) {
      return std::nullopt;
    }
    const Places places = places_of(*q, *kv);
    return are_equal(places_of(right.q, right.kv), places) ? std::nullopt : std::optional(places);
  }

  static Places places_of(const RowsByRank& q, const RowsByRank& kv) {
    return {.q_sequence = column_of(q, &LocalRow::sequence),
            .q_position = column_of(q, &LocalRow::position),
            .kv_sequence = column_of(kv, &LocalRow::sequence),
            .kv_position = column_of(kv, &LocalRow::position)};
  }

  static bool are_equal(const Places& a, const Places& b) {
    return a.q_sequence.equal(b.q_sequence) && a.q_position.equal(b.q_position) && a.kv_sequence.equal(b.kv_sequence) &&
           a.kv_position.equal(b.kv_position);
  }

  // Adds the hypothesis that rows are taken for others; left out if an earlier one of the same id believes the same.
  // The id of a sequence's convention stands for that of the pack.
  void add(const std::string& id, std::string says, const Belief& belief) {
    const std::optional<Places> places = places_by(belief);
    if (!places) return;
    std::vector<Places>& known = known_[id.substr(0, id.find("_pack"))];
    if (std::ranges::any_of(known, [&](const Places& before) { return are_equal(before, *places); })) return;
    known.push_back(*places);
    pass(id, std::move(says), [places = *places](const DenseProblem& dense, Pass& pass) {
      take_places(dense, places, /*bias_too=*/dense.c().layout == Layout::thd, pass);
    });
  }

  // places: those of all rows. The problem may have only a sample of the queries. bias_too: a query reads the bias row
  // of the position that it is taken to have; in bshd and sbhd a rank holds only the bias rows of its own queries.
  static void take_places(const DenseProblem& dense, const Places& places, bool bias_too, Pass& pass) {
    MaskRule rule(dense);
    rule.places = places;
    const at::Tensor rows = dense.q_rows.row;
    rule.places.q_sequence = places.q_sequence.index_select(0, rows);
    rule.places.q_position = places.q_position.index_select(0, rows);
    pass.times = rule.times();
    if (!dense.bias.defined()) return;
    pass.bias_index =
        dense.bias_index_at(bias_too ? rule.places.q_sequence : dense.q_rows.sequence,
                            bias_too ? rule.places.q_position : dense.q_rows.position, rule.places.kv_position);
  }

  // Gathered keys stay in the order of ranks but are taken for whole sequences.
  void gathered() {
    if (dense_.ranks == 1) return;
    const char* const id = "gathered_rows_not_reordered";
    const at::Tensor order = order_in_sequences(dense_.kv_rows);
    const at::Tensor& rows = dense_.kv_rows.row;
    if (order.equal(rows)) return;
    const at::Tensor all = order.unsqueeze(0).expand({dense_.ranks, -1}).contiguous();
    const at::Tensor ranks = at::arange(dense_.ranks, at::kLong).unsqueeze(1);
    model(id, "gathered K and V stay in the order of ranks and are taken for whole sequences",
          [all](SimulatedStep& model) { model.forward.held = model.backward.held = model.landing = all; });
    of_groups(id);
    // The same in the gradients only.
    const char* const gradients = "dkv_rows_not_reordered";
    const at::Tensor own_slice =
        all.div(std::max<std::int64_t>(1, dense_.kv_rows.count() / dense_.ranks), "floor").eq(ranks);
    const at::Tensor of_others =
        at::where(dense_.kv_rows.rank.unsqueeze(0).eq(ranks), rows.unsqueeze(0), all.masked_fill(own_slice, -1));
    for (const at::Tensor& landing : {of_others, all}) {
      sums(gradients, "dk and dv of gathered rows are distributed in the order of sequences instead of ranks",
           [landing](SimulatedStep& model) { model.landing = landing; });
    }
  }

  // The rows of ranks that exchange heads stay in the order of ranks.
  void of_groups(const char* id) {
    for (const int size : {inner_ranks(c_), dense_.ranks}) {
      if (size == 0 || dense_.ranks % size != 0) continue;
      const std::string says =
          "rows that ranks traded for heads stay in the order of ranks and are taken for whole sequences";
      const Belief in_order = [size = static_cast<std::size_t>(size)](const RowsByRank& rows, const auto&,
                                                                      const auto&) {
        RowsByRank believed = rows;
        for (std::size_t first = 0; first < rows.size(); first += size) {
          std::vector<LocalRow> sorted;
          for (std::size_t r = first; r < first + size; ++r) {
            sorted.insert(sorted.end(), rows[r].begin(), rows[r].end());
          }
          std::ranges::stable_sort(sorted, {},
                                   [](const LocalRow& row) { return std::pair(row.sequence, row.position); });
          auto next = sorted.begin();
          for (std::size_t r = first; r < first + size; ++r) {
            for (LocalRow& row : believed[r]) row = *next++;
          }
        }
        return believed;
      };
      add(id, says, in_order);
      with_bias_rows(id, says + ", but bias rows are in the right order", in_order);
    }
  }

  // The bias rows are exchanged too and are in the right order. Each query reads the bias row of the position that it
  // is taken to have, and the gradient goes there.
  void with_bias_rows(const char* id, std::string says, const Belief& belief) {
    if (!dense_.bias.defined() || c_.layout == Layout::thd) return;
    const std::optional<Places> places = places_by(belief);
    if (!places) return;
    model(id, std::move(says), [places = *places](SimulatedStep& model) {
      for (Pass* const pass : {&model.forward, &model.backward}) {
        take_places(*model.dense, places, /*bias_too=*/true, *pass);
      }
      model.dbias_of_all_ranks = true;
    });
  }

  // A sequence is taken to begin where the rank's shares of the valid tokens of earlier sequences end. Its rows get the
  // positions of chunks of the padded or of the valid length, and its number of rows is that of the padded or of the
  // valid length.
  void valid_offsets() {
    if (!c_.pad_between_seqs || c_.batch == 1) return;
    for (const bool chunks_are_padded : {true, false}) {
      for (const bool as_many_as_padded : {true, false}) {
        add("valid_offsets_in_padded_rows",
            "a rank's shares of the offsets of valid tokens are used as the beginnings of sequences in rows that "
            "include padding",
            [=](const RowsByRank& rows, const Lengths& valid, const Lengths& padded) {
              const auto ranks = static_cast<std::int64_t>(rows.size());
              RowsByRank believed = rows;
              for (std::int64_t rank = 0; rank < ranks; ++rank) {
                std::vector<LocalRow>& own = believed[static_cast<std::size_t>(rank)];
                std::ranges::fill(own, kNoRow);
                std::int64_t offset = 0;
                for (std::size_t b = 0; b < valid.size(); offset += valid[b++]) {
                  const std::int64_t chunk = (chunks_are_padded ? padded[b] : valid[b]) / (2 * ranks);
                  const std::int64_t count = std::min(2 * chunk, (as_many_as_padded ? padded[b] : valid[b]) / ranks);
                  const auto first = static_cast<std::size_t>(offset / ranks);
                  for (std::int64_t i = 0; i < count && first + static_cast<std::size_t>(i) < own.size(); ++i) {
                    const std::int64_t position = (i < chunk ? rank : 2 * ranks - 1 - rank) * chunk + i % chunk;
                    own[first + static_cast<std::size_t>(i)] = {.sequence = static_cast<std::int64_t>(b),
                                                                .position = position,
                                                                .canonical = position < valid[b] ? 0 : -1};
                  }
                }
              }
              return believed;
            });
      }
    }
  }

  const SequenceLengths& lengths_ = dense_.lengths();
  std::map<std::string, std::vector<Places>> known_;  // by id
};

}  // namespace

Hypotheses row_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  return Rows(dense, symptoms).all();
}

}  // namespace cp_pool::diagnosis
