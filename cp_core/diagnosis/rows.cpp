// Mistakes in which attention takes a rank's rows for other rows than those that the rank holds.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "cases/comm_facts.h"
#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"
#include "cp_core/diagnosis/subject.h"
#include "cp_core/verify/conventions.h"

namespace cp_pool::diagnosis {
namespace {

using verify::Convention;
using verify::ConventionKind;
using verify::LocalRow;
using verify::RowsByRank;

// Maps the rows of each rank to the rows that they are taken for. nullopt: the mistake is not possible here.
using Belief = std::function<std::optional<RowsByRank>(const RowsByRank& rows, const std::vector<std::int64_t>& valid,
                                                       const std::vector<std::int64_t>& padded)>;

RowsByRank rows_of(const Side& side) {
  RowsByRank rows;
  for (std::size_t rank = 0; rank + 1 < side.first.size(); ++rank) {
    auto& own = rows.emplace_back();
    for (std::int64_t row = side.first[rank]; row < side.first[rank + 1]; ++row) {
      own.push_back({.sequence = side.sequence[row].item<std::int64_t>(),
                     .position = side.position[row].item<std::int64_t>(),
                     .canonical = side.canonical[row].item<std::int64_t>()});
    }
  }
  return rows;
}

at::Tensor column_of(const RowsByRank& rows, std::int64_t LocalRow::* member) {
  std::vector<std::int64_t> values;
  for (const auto& of_rank : rows) {
    for (const LocalRow& row : of_rank) values.push_back(row.*member);
  }
  return index_tensor(values);
}

bool as_many(const RowsByRank& a, const RowsByRank& b) {
  return std::ranges::equal(a, b, {}, &std::vector<LocalRow>::size, &std::vector<LocalRow>::size);
}

bool same_places(const RowsByRank& a, const RowsByRank& b) {
  const auto place = [](const LocalRow& row) { return std::pair(row.sequence, row.position); };
  return std::ranges::equal(a, b,
                            [&](const auto& x, const auto& y) { return std::ranges::equal(x, y, {}, place, place); });
}

// The rows that those of both sides are taken for.
struct Believed {
  RowsByRank q;
  RowsByRank kv;
};

class Rows : Subject {
 public:
  using Subject::Subject;

  Hypotheses all() {
    if (may_have_two_chunks()) {
      add("chunks_exchanged", "each of a rank's two chunks is taken for the other chunk", halves_exchanged());
      add("chunks_not_mirrored", "the second chunk of rank r is taken for chunk n + r instead of chunk 2n - 1 - r",
          not_mirrored());
    }
    of_another_rank();
    conventions();
    positions_from_zero();
    windows_of_local_rows();
    gathered();
    valid_offsets();
    return std::move(all_);
  }

 private:
  // Whether a rank may hold two chunks of a sequence. Of rows that an implementation lists itself, that is not known.
  [[nodiscard]] bool may_have_two_chunks() const {
    const auto* const convention = std::get_if<Convention>(&world_.observation->sharding.rows);
    constexpr std::array kOfOtherParts{ConventionKind::contiguous, ConventionKind::contiguous_pack,
                                       ConventionKind::striped};
    return convention == nullptr || std::ranges::find(kOfOtherParts, convention->kind) == kOfOtherParts.end();
  }

  static Belief halves_exchanged() {
    return [](const RowsByRank& rows, const auto&, const auto&) -> std::optional<RowsByRank> {
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
    };
  }

  [[nodiscard]] Belief not_mirrored() const {
    const int ranks = world_.ranks;
    return [ranks](const RowsByRank&, const std::vector<std::int64_t>& valid,
                   const std::vector<std::int64_t>& padded) -> std::optional<RowsByRank> {
      RowsByRank believed(static_cast<std::size_t>(ranks));
      for (std::size_t b = 0; b < padded.size(); ++b) {
        const std::int64_t chunk = padded[b] / (2 * ranks);
        for (int rank = 0; rank < ranks; ++rank) {
          for (const int part : {rank, ranks + rank}) {
            for (std::int64_t i = 0; i < chunk; ++i) {
              const std::int64_t position = part * chunk + i;
              believed[static_cast<std::size_t>(rank)].push_back({.sequence = static_cast<std::int64_t>(b),
                                                                  .position = position,
                                                                  .canonical = position < valid[b] ? 0 : -1});
            }
          }
        }
      }
      return believed;
    };
  }

  void of_another_rank() {
    const int ranks = world_.ranks;
    const auto taken_for = [](auto other) {
      return [other](const RowsByRank& rows, const auto&, const auto&) -> std::optional<RowsByRank> {
        RowsByRank believed;
        for (std::size_t rank = 0; rank < rows.size(); ++rank) believed.push_back(rows[other(rank)]);
        return believed;
      };
    };
    const auto count = static_cast<std::size_t>(ranks);
    const char* const id = "rows_of_another_rank";
    add(id, "rank r takes its rows for those of rank n - 1 - r",
        taken_for([count](std::size_t r) { return count - 1 - r; }));
    add(id, "a rank takes its rows for those of the next rank",
        taken_for([count](std::size_t r) { return (r + 1) % count; }));
    add(id, "a rank takes its rows for those of the previous rank",
        taken_for([count](std::size_t r) { return (r + count - 1) % count; }));
    add(id, "every rank takes its rows for those of rank 0", taken_for([](std::size_t) { return std::size_t{0}; }));
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
    for (int ring = 2; ring < world_.ranks; ++ring) {
      if (world_.ranks % ring != 0) continue;
      for (const bool inner : {true, false}) {
        known.push_back({.kind = ConventionKind::dual_chunk_ulysses, .ring = ring, .ulysses_inner = inner});
      }
    }
    for (const Convention& convention : known) {
      const std::string name = verify::to_string(convention);
      add("sharding_" + name.substr(0, name.find(':')),
          fmt::format("attention assumes that rows are sharded by the convention {}", name),
          [convention, layout = c_.layout, ranks = world_.ranks](
              const RowsByRank&, const std::vector<std::int64_t>& valid,
              const std::vector<std::int64_t>& padded) -> std::optional<RowsByRank> {
            if (!verify::convention_obstacle(convention, layout, valid, padded, ranks).empty()) return std::nullopt;
            return verify::rows_by_convention(convention, layout, valid, padded, ranks);
          });
    }
  }

  // Adds the hypothesis that queries, keys or both are taken for other rows; left out if an earlier one of the same id
  // believes the same. The id of a sequence's convention stands for that of the pack.
  void add(const std::string& id, std::string says, const Belief& belief, bool queries = true, bool keys = true) {
    Believed believed{.q = q_, .kv = kv_};
    if (queries) {
      auto q = belief(q_, lengths_.valid_q, lengths_.padded_q);
      if (!q || !as_many(*q, q_)) return;
      believed.q = std::move(*q);
    }
    if (keys) {
      auto kv = belief(kv_, lengths_.valid_kv, lengths_.padded_kv);
      if (!kv || !as_many(*kv, kv_)) return;
      believed.kv = std::move(*kv);
    }
    if (same_places(believed.q, q_) && same_places(believed.kv, kv_)) return;
    std::vector<Believed>& known = known_[id.substr(0, id.find("_pack"))];
    for (const Believed& before : known) {
      if (same_places(before.q, believed.q) && same_places(before.kv, believed.kv)) return;
    }
    known.push_back(believed);
    const Places places = places_of(believed);
    pass(id, std::move(says), [places](const World& world, Pass& pass) { take_places(world, places, pass); });
  }

  static Places places_of(const Believed& believed) {
    return {.q_sequence = column_of(believed.q, &LocalRow::sequence),
            .q_position = column_of(believed.q, &LocalRow::position),
            .kv_sequence = column_of(believed.kv, &LocalRow::sequence),
            .kv_position = column_of(believed.kv, &LocalRow::position)};
  }

  // places: those of all rows. The world may have only a sample of the queries.
  static void take_places(const World& world, const Places& places, Pass& pass) {
    MaskRule rule(world);
    rule.places = places;
    const at::Tensor rows = world.q_rows.row;
    rule.places.q_sequence = places.q_sequence.index_select(0, rows);
    rule.places.q_position = places.q_position.index_select(0, rows);
    pass.times = rule.times();
    if (!world.bias.defined()) return;
    // In bshd and sbhd a rank holds only the bias rows of its own queries.
    const bool by_row = world.c().layout == Layout::thd;
    const at::Tensor columns =
        world.bias_index_at(by_row ? rule.places.q_position : world.q_rows.position, rule.places.kv_position);
    pass.bias_index = columns;
  }

  // Positions counted among the rows that a rank has of a sequence (of_chunk: among those of one chunk).
  static Places local_places(const World& world, bool of_chunk) {
    const auto place = [of_chunk](const Side& side) { return of_chunk ? side.place_in_half : side.place; };
    return {.q_sequence = world.q_rows.sequence,
            .q_position = place(world.q_rows),
            .kv_sequence = world.kv_rows.sequence,
            .kv_position = place(world.kv_rows)};
  }

  // Positions are counted in each rank's rows; which rows are padding stays correct.
  static void count_locally(const World& world, bool queries, bool keys, MaskRule& rule) {
    const Places local = local_places(world, /*of_chunk=*/false);
    rule.valid_rows = std::pair(world.q_rows.valid, world.kv_rows.valid);
    if (queries) rule.places.q_position = local.q_position;
    if (keys) rule.places.kv_position = local.kv_position;
    for (std::size_t b = 0; b < rule.valid_q.size(); ++b) {
      if (queries) rule.valid_q[b] = world.lengths().padded_q[b] / world.ranks;
      if (keys) rule.valid_kv[b] = world.lengths().padded_kv[b] / world.ranks;
    }
  }

  void add_rule(std::string id, std::string says, std::function<void(const World&, MaskRule&)> change) {
    all_.push_back(mask_mistake(std::move(id), std::move(says), std::move(change)));
  }

  void positions_from_zero() {
    if (world_.ranks == 1) return;
    // If the mask is only a window, the id of a window counted in local rows fits better.
    const bool window_alone = !c_.causal && c_.chunk == 0;
    const char* const id = window_alone ? "window_of_local_chunk" : "positions_from_zero";
    add_rule(id,
             window_alone ? "the window is computed from the places of queries and keys in their rank's rows instead "
                            "of their positions in the sequence"
                          : "every rank counts the positions of its queries and keys from 0",
             [](const World& world, MaskRule& rule) { count_locally(world, true, true, rule); });
    add_rule(id, "every rank counts the positions of its queries from 0",
             [](const World& world, MaskRule& rule) { count_locally(world, true, false, rule); });
    add_rule(id, "every rank counts the positions of its keys from 0",
             [](const World& world, MaskRule& rule) { count_locally(world, false, true, rule); });
  }

  void windows_of_local_rows() {
    if (world_.ranks == 1 || (c_.window[0] < 0 && c_.window[1] < 0 && !c_.causal)) return;
    const char* const id = "window_of_local_chunk";
    for (const bool of_chunk : {false, true}) {
      const char* const where = of_chunk ? "chunk" : "rows";
      if (c_.window[0] >= 0 || c_.window[1] >= 0) {
        add_rule(
            id,
            fmt::format("the window is computed from the places of queries and keys in their rank's {} instead of "
                        "their positions in the sequence",
                        where),
            [of_chunk](const World& world, MaskRule& rule) { rule.window_places = local_places(world, of_chunk); });
      }
      if (c_.causal) {
        add_rule(
            id,
            fmt::format("the diagonal is computed from the places of queries and keys in their rank's {} instead of "
                        "their positions in the sequence",
                        where),
            [of_chunk](const World& world, MaskRule& rule) { rule.causal_places = local_places(world, of_chunk); });
      }
    }
  }

  // Gathered keys stay in the order of ranks but are taken for whole sequences.
  void gathered() {
    if (world_.ranks == 1) return;
    const char* const id = "gathered_rows_not_reordered";
    const at::Tensor order = order_in_sequences(world_.kv_rows);
    const at::Tensor rows = at::arange(world_.kv_rows.count(), at::kLong);
    if (order.equal(rows)) return;
    const at::Tensor all = order.unsqueeze(0).expand({world_.ranks, -1}).contiguous();
    const at::Tensor ranks = at::arange(world_.ranks, at::kLong).unsqueeze(1);
    const at::Tensor others = at::where(world_.kv_rows.rank.unsqueeze(0).eq(ranks), rows.unsqueeze(0), all);
    for (const at::Tensor& held : {others, all}) {
      for (const bool lands_back : {true, false}) {
        model(id,
              fmt::format("gathered K and V{} stay in the order of ranks and are taken for whole sequences{}",
                          lands_back ? "" : ", but not their gradients,",
                          held.is_same(others) ? ", except for a rank's own rows" : ""),
              [held, lands_back](Model& model) {
                model.forward.held = held;
                model.backward.held = held;
                if (lands_back) model.landing = held;
              });
      }
    }
    of_groups(id);
    // The same in the gradients only.
    const char* const gradients = "dkv_rows_not_reordered";
    const at::Tensor own_slice =
        all.div(std::max<std::int64_t>(1, world_.kv_rows.count() / world_.ranks), "floor").eq(ranks);
    const at::Tensor of_others =
        at::where(world_.kv_rows.rank.unsqueeze(0).eq(ranks), rows.unsqueeze(0), all.masked_fill(own_slice, -1));
    for (const at::Tensor& landing : {of_others, all}) {
      sums(gradients, "dk and dv of gathered rows are distributed in the order of sequences instead of ranks",
           [landing](Model& model) { model.landing = landing; });
    }
  }

  // The rows of ranks that exchange heads stay in the order of ranks.
  void of_groups(const char* id) {
    std::vector<int> sizes{world_.ranks};
    if (const int inner = inner_ranks(world_.c()); inner > 0) sizes.insert(sizes.begin(), inner);
    for (const int size : sizes) {
      if (world_.ranks % size != 0) continue;
      const std::string says =
          "rows that ranks traded for heads stay in the order of ranks and are taken for whole sequences";
      const Belief in_order = [size](const RowsByRank& rows, const auto&, const auto&) -> std::optional<RowsByRank> {
        RowsByRank believed = rows;
        for (std::size_t first = 0; first < rows.size(); first += static_cast<std::size_t>(size)) {
          std::vector<LocalRow> sorted;
          for (std::size_t r = first; r < first + static_cast<std::size_t>(size); ++r) {
            sorted.insert(sorted.end(), rows[r].begin(), rows[r].end());
          }
          std::ranges::stable_sort(sorted, {},
                                   [](const LocalRow& row) { return std::pair(row.sequence, row.position); });
          auto next = sorted.begin();
          for (std::size_t r = first; r < first + static_cast<std::size_t>(size); ++r) {
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
    if (!world_.bias.defined() || c_.layout == Layout::thd) return;
    const auto q = belief(q_, lengths_.valid_q, lengths_.padded_q);
    const auto kv = belief(kv_, lengths_.valid_kv, lengths_.padded_kv);
    if (!q || !kv || (same_places(*q, q_) && same_places(*kv, kv_))) return;
    const Places places = places_of({.q = *q, .kv = *kv});
    model(id, std::move(says), [places](Model& model) {
      const World& world = *model.world;
      for (Pass* const pass : {&model.forward, &model.backward}) {
        take_places(world, places, *pass);
        if (!world.bias.defined()) continue;
        const at::Tensor rows = world.q_rows.row;
        pass->bias_index = world.bias_index_at(places.q_sequence.index_select(0, rows),
                                               places.q_position.index_select(0, rows), places.kv_position);
      }
      model.dbias_of_all_ranks = true;
    });
  }

  // Sequences are taken to begin where they would begin without padding.
  void valid_offsets() {
    if (!c_.pad_between_seqs || c_.batch == 1) return;
    const char* const id = "valid_offsets_in_padded_rows";
    // Offsets are counted in the padded sequences.
    add(id, "the offsets of valid tokens are used as the beginnings of sequences in rows that include padding",
        [](const RowsByRank& rows, const std::vector<std::int64_t>& valid,
           const std::vector<std::int64_t>& padded) -> std::optional<RowsByRank> {
          std::vector<std::int64_t> starts;
          std::exclusive_scan(padded.begin(), padded.end(), std::back_inserter(starts), std::int64_t{0});
          RowsByRank believed = rows;
          for (auto& own : believed) {
            for (LocalRow& row : own)
              row = token_at(starts[static_cast<std::size_t>(row.sequence)] + row.position, valid);
          }
          return believed;
        });
    in_rows_of_ranks(id);
    // Offsets are counted in the valid tokens of each rank's rows.
    add(id, "the offsets of a rank's valid tokens are used as the beginnings of sequences in rows that include padding",
        [](const RowsByRank& rows, const std::vector<std::int64_t>& valid, const auto&) -> std::optional<RowsByRank> {
          RowsByRank believed = rows;
          for (std::size_t rank = 0; rank < rows.size(); ++rank) {
            std::vector<std::vector<LocalRow>> of_sequences(valid.size());
            for (const LocalRow& row : rows[rank]) {
              if (row.canonical >= 0) of_sequences[static_cast<std::size_t>(row.sequence)].push_back(row);
            }
            std::vector<LocalRow> tokens;
            for (const auto& some : of_sequences) tokens.insert(tokens.end(), some.begin(), some.end());
            for (std::size_t i = 0; i < rows[rank].size(); ++i) {
              believed[rank][i] =
                  i < tokens.size() ? tokens[i] : LocalRow{.sequence = 0, .position = -1, .canonical = -1};
            }
          }
          return believed;
        });
  }

  // A sequence is taken to begin where the rank's shares of the valid tokens of earlier sequences end. Its rows get the
  // positions of chunks of the padded or of the valid length, and its number of rows is that of the padded or of the
  // valid length.
  void in_rows_of_ranks(const char* id) {
    for (const bool chunks_are_padded : {true, false}) {
      for (const bool as_many_as_padded : {true, false}) {
        add(id,
            "a rank's shares of the offsets of valid tokens are used as the beginnings of sequences in rows that "
            "include padding",
            [=, ranks = static_cast<std::int64_t>(world_.ranks)](
                const RowsByRank& rows, const std::vector<std::int64_t>& valid,
                const std::vector<std::int64_t>& padded) -> std::optional<RowsByRank> {
              RowsByRank believed = rows;
              for (std::size_t rank = 0; rank < rows.size(); ++rank) {
                std::ranges::fill(believed[rank], LocalRow{.sequence = 0, .position = -1, .canonical = -1});
                std::int64_t offset = 0;
                for (std::size_t b = 0; b < valid.size(); offset += valid[b++]) {
                  const std::int64_t chunk = (chunks_are_padded ? padded[b] : valid[b]) / (2 * ranks);
                  const std::int64_t count = std::min(2 * chunk, (as_many_as_padded ? padded[b] : valid[b]) / ranks);
                  take_chunks({.sequence = static_cast<std::int64_t>(b), .first = offset / ranks, .count = count},
                              chunk, {static_cast<std::int64_t>(rank), 2 * ranks - 1 - static_cast<std::int64_t>(rank)},
                              valid[b], believed[rank]);
                }
              }
              return believed;
            });
      }
    }
  }

  struct Stretch {
    std::int64_t sequence = 0;
    std::int64_t first = 0;  // first row
    std::int64_t count = 0;
  };

  // Assigns the positions of two chunks to these rows.
  static void take_chunks(const Stretch& of, std::int64_t chunk, const std::array<std::int64_t, 2>& chunks,
                          std::int64_t valid, std::vector<LocalRow>& rows) {
    for (std::int64_t i = 0; i < of.count; ++i) {
      if (of.first + i >= static_cast<std::int64_t>(rows.size())) return;
      const std::int64_t position = chunks[static_cast<std::size_t>(i / chunk)] * chunk + i % chunk;
      rows[static_cast<std::size_t>(of.first + i)] = {
          .sequence = of.sequence, .position = position, .canonical = position < valid ? 0 : -1};
    }
  }

  static LocalRow token_at(std::int64_t offset, const std::vector<std::int64_t>& valid) {
    for (std::size_t b = 0; b < valid.size(); ++b) {
      if (offset < valid[b]) return {.sequence = static_cast<std::int64_t>(b), .position = offset, .canonical = 0};
      offset -= valid[b];
    }
    return {.sequence = 0, .position = -1, .canonical = -1};
  }

  const SequenceLengths& lengths_ = world_.lengths();
  RowsByRank q_ = rows_of(world_.q_rows);
  RowsByRank kv_ = rows_of(world_.kv_rows);
  std::map<std::string, std::vector<Believed>> known_;  // by id
};

}  // namespace

Hypotheses row_hypotheses(const World& world, const Symptoms& symptoms) {
  return Rows(world, symptoms).all();
}

}  // namespace cp_pool::diagnosis
