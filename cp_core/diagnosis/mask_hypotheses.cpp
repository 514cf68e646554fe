// Mistakes in which keys a query sees.
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cp_core/diagnosis/hypothesis.h"
#include "cp_core/diagnosis/mask_rule.h"
#include "cp_core/diagnosis/rank_parts.h"

namespace cp_pool::diagnosis {
namespace {

using ChangeRule = std::function<void(MaskRule&)>;

class Masks : public Subject {
 public:
  Masks(const DenseProblem& dense, const Symptoms& symptoms) : Subject(dense, symptoms) {
    diagonals();
    windows();
    right_edge();
    chunks();
    if (!c_.mask.empty()) slices();
    sequences();
    lengths();
    neighbours();
    if (dense_.ranks > 1) {
      positions_from_zero();
      windows_of_local_rows();
    }
  }

 private:
  [[nodiscard]] bool has_left() const { return c_.window[0] >= 0; }
  [[nodiscard]] bool has_right() const { return c_.causal || c_.window[1] >= 0; }
  [[nodiscard]] std::int64_t right() const { return c_.causal ? 0 : c_.window[1]; }

  void diagonals() {
    if (lengths_.valid_q != lengths_.valid_kv) {
      mask("diagonal_top_left",
           "with unequal lengths, the diagonal starts at the top left instead of ending at the bottom right",
           [](MaskRule& rule) { rule.diagonal = MaskRule::Diagonal::top_left; });
      mask("diagonal_reversed",
           "with unequal lengths, the diagonal is moved by the difference of the lengths in the wrong direction",
           [](MaskRule& rule) { rule.diagonal = MaskRule::Diagonal::reversed; });
      if (c_.chunk > 0) {
        mask("diagonal_top_left", "the chunk of a query is chosen by the query's position instead of its diagonal",
             [](MaskRule& rule) { rule.chunk_of_diagonal = false; });
      }
    }
    // If the mask has only one edge, a shifted diagonal is the same as a shifted edge.
    if ((has_left() ? 1 : 0) + (has_right() ? 1 : 0) + (c_.chunk > 0 ? 1 : 0) < 2) return;
    for (const std::int64_t shift : {1, -1}) {
      mask("diagonal_off_by_one",
           fmt::format("the diagonal lies one key too far to the {}", shift > 0 ? "right" : "left"),
           [shift](MaskRule& rule) { rule.shift = shift; });
    }
  }

  void windows() {
    const bool right_window = c_.window[1] >= 0 && !c_.causal;
    const auto ignored = [this](std::string says, bool left, bool right, bool causal = false) {
      mask("window_ignored", std::move(says), [=](MaskRule& rule) {
        if (left) rule.window[0].reset();
        if (right) rule.window[1].reset();
        rule.causal = rule.causal || causal;
      });
    };
    for (const std::int64_t off : {1, -1}) {
      if (!has_left()) break;
      const std::int64_t edge = c_.window[0] + off;
      mask("window_left_off_by_one", fmt::format("the window's left edge is {} instead of {}", edge, c_.window[0]),
           [edge](MaskRule& rule) { rule.window[0] = edge; });
    }
    if (has_left()) ignored("the window's left side is ignored", true, false);
    if (right_window) ignored("the window's right side is ignored", false, true);
    if (has_left() && right_window) ignored("the window is ignored on both sides", true, true);
    if ((has_left() || right_window) && !c_.causal) {
      ignored("a causal mask is used instead of the window", true, true, /*causal=*/true);
    }
    if (symptoms_.takes_windows) literal_limits();
  }

  // A side of the window that is -1, which means no limit, is taken for a width of -1.
  void literal_limits() {
    for (const auto& [left, right] : {std::pair{true, false}, {false, true}, {true, true}}) {
      if ((left && c_.window[0] >= 0) || (right && c_.window[1] >= 0)) continue;
      mask("window_minus_one_literal",
           left && right ? "the window's sides of -1, which mean no limit, are taken for widths of -1"
                         : fmt::format("the window's {} side of -1, which means no limit, is taken for a width of -1",
                                       left ? "left" : "right"),
           [left = left, right = right](MaskRule& rule) {
             if (left) rule.window[0] = -1;
             if (right) rule.window[1] = -1;
           });
    }
  }

  void right_edge() {
    if (!has_right()) return;
    for (const std::int64_t off : {1, -1}) {
      const std::int64_t edge = right() + off;
      std::string says = c_.causal ? fmt::format("a causal query {}",
                                                 off > 0 ? "sees the key after its own" : "does not see its own key")
                                   : fmt::format("the window's right edge is {} instead of {}", edge, right());
      mask("window_right_off_by_one", std::move(says), [edge](MaskRule& rule) {
        if (rule.causal) {
          rule.causal_edge = edge;
          rule.window[1].reset();
        } else {
          rule.window[1] = edge;
        }
      });
    }
    if (!c_.causal) return;
    mask("causal_ignored", "causal is ignored: queries see the keys after their own",
         [](MaskRule& rule) { rule.causal = false; });
    if (c_.window[1] < 0) return;
    mask("causal_ignored", "causal and the window's right side are ignored: queries see the keys after their own",
         [](MaskRule& rule) {
           rule.causal = false;
           rule.window[1].reset();
         });
  }

  void chunks() {
    if (c_.chunk == 0) return;
    mask("chunk_ignored", "chunks are ignored", [](MaskRule& rule) { rule.chunk = 0; });
    if (!c_.causal) {
      mask("chunk_ignored", "a causal mask is used instead of the chunks", [](MaskRule& rule) {
        rule.chunk = 0;
        rule.causal = true;
      });
    }
    first_queries_of_chunks();
    for (const std::int64_t off : {1, -1}) {
      const char* const id = "chunk_boundary_off_by_one";
      const std::string_view where = off > 0 ? "one position late" : "one position early";
      mask(id, fmt::format("a chunk's queries begin {}", where),
           [off](MaskRule& rule) { rule.chunk_query_shift = off; });
      mask(id, off > 0 ? "a chunk's first key is missing" : "a chunk sees the last key of the previous chunk",
           [off](MaskRule& rule) { rule.chunk_first_shift = off; });
      mask(id, off > 0 ? "a chunk sees the first key of the next chunk" : "a chunk's last key is missing",
           [off](MaskRule& rule) { rule.chunk_end_shift = off; });
      mask(id, fmt::format("a chunk's keys begin and end {}", where),
           [off](MaskRule& rule) { rule.chunk_first_shift = rule.chunk_end_shift = off; });
      const std::int64_t size = c_.chunk + off;
      if (size == 0) continue;
      mask(id, fmt::format("a chunk has {} positions instead of {}", size, c_.chunk),
           [size](MaskRule& rule) { rule.chunk = size; });
    }
  }

  void slices() {
    const SliceType causal = SliceType::causal;
    const SliceType inverse = SliceType::inverse_causal;
    for (const std::vector<SliceType>& types : {std::vector{causal}, {inverse}, {causal, inverse}}) {
      const std::string of = types.size() > 1 ? "causal and inverse_causal" : std::string(to_string(types.front()));
      mask("slice_corner", fmt::format("the diagonals of {} slices are in the opposite corners", of),
           [types](MaskRule& rule) { rule.opposite_corners = types; });
    }
    mask("slice_ignored", "slices show all of their pairs", [](MaskRule& rule) {
      for (MaskSlice& slice : rule.slices) slice.type = SliceType::full;
    });
    for (const std::int64_t off : {1, -1}) {
      const char* const id = "slice_off_by_one";
      const std::string_view where = off > 0 ? "one position late" : "one position early";
      mask(id, fmt::format("the keys of slices end {}", where), [off](MaskRule& rule) { rule.slice_key_shift = off; });
      mask(id, fmt::format("the queries of slices end {}", where),
           [off](MaskRule& rule) { rule.slice_query_shift = off; });
      mask(id, fmt::format("the keys of slices and their diagonals end {}", where), [off](MaskRule& rule) {
        for (MaskSlice& slice : rule.slices) slice.keys.end += off;
      });
    }
    if (c_.mask.size() == 1) return;
    for (std::size_t s = 0; s < c_.mask.size(); ++s) {
      mask("slice_ignored", fmt::format("slice {} of the mask is left out", s),
           [s](MaskRule& rule) { rule.slices.erase(rule.slices.begin() + static_cast<std::ptrdiff_t>(s)); });
    }
    mask("slice_ignored", "of slices with the same queries, all but the first are left out", [](MaskRule& rule) {
      std::vector<MaskSlice> kept;
      for (const MaskSlice& slice : rule.slices) {
        if (std::ranges::find(kept, slice.queries, &MaskSlice::queries) == kept.end()) kept.push_back(slice);
      }
      rule.slices = std::move(kept);
    });
  }

  void sequences() {
    if (c_.batch == 1) return;
    of_longest();
    const char* const id = "sequence_borders_ignored";
    mask(id, "queries see the keys of all sequences at the positions that the mask allows",
         [](MaskRule& rule) { rule.borders = false; });
    mask(id, "the pack is taken for one sequence",
         [](MaskRule& rule) { as_one_sequence(rule.padded_q, rule.padded_kv, rule); });
    if (!c_.pad_between_seqs) return;
    mask(id, "the valid tokens of the pack are taken for one sequence",
         [](MaskRule& rule) { as_one_sequence(rule.valid_q, rule.valid_kv, rule); });
  }

  void of_longest() {
    if (std::ranges::adjacent_find(lengths_.valid_kv, std::ranges::not_equal_to()) == lengths_.valid_kv.end()) return;
    for (const bool queries : {true, false}) {
      mask("lengths_of_longest",
           fmt::format("the length of the longest sequence is used for all{}", queries ? "" : ", for keys only"),
           [queries](MaskRule& rule) {
             std::ranges::fill(rule.valid_kv, std::ranges::max(rule.valid_kv));
             if (queries) std::ranges::fill(rule.valid_q, std::ranges::max(rule.valid_q));
           });
    }
  }

  // The keys of parts that are not next to the query's part are not asked for. A part is a stretch of the sequence.
  void neighbours() {
    if (dense_.ranks < 3) return;
    pass("window_of_neighbours",
         "queries see only keys in their own and in neighbouring parts of the sequence, one part per rank",
         [](const DenseProblem& dense, Pass& pass) {
           const at::Tensor part = index_tensor(dense.lengths().padded_kv).div(dense.ranks, "floor").clamp_min(1);
           const auto part_of = [&](const Side& side, const at::Tensor& position) {
             return position.div(part.index_select(0, side.sequence), "floor");
           };
           const at::Tensor queries = part_of(dense.q_rows, MaskRule(dense).diagonal_of_queries()).unsqueeze(1);
           const at::Tensor keys = part_of(dense.kv_rows, dense.kv_rows.position).unsqueeze(0);
           pass.times = pass.times.mul(queries.sub(keys).abs().le(1));
         });
  }

  static at::Tensor starts_of(const std::vector<std::int64_t>& lengths, const at::Tensor& sequences) {
    std::vector<std::int64_t> starts;
    std::exclusive_scan(lengths.begin(), lengths.end(), std::back_inserter(starts), std::int64_t{0});
    return index_tensor(starts).index_select(0, sequences);
  }

  // Lays the sequences, which have these lengths, end to end as one sequence. Padding stays unseen.
  static void as_one_sequence(std::vector<std::int64_t> q, std::vector<std::int64_t> kv, MaskRule& rule) {  // NOLINT
    constexpr std::int64_t kNowhere = -1;
    Places& places = rule.places;
    const at::Tensor padded_q = index_tensor(rule.valid_q).index_select(0, places.q_sequence).le(places.q_position);
    const at::Tensor padded_kv = index_tensor(rule.valid_kv).index_select(0, places.kv_sequence).le(places.kv_position);
    places.q_position = places.q_position.add(starts_of(q, places.q_sequence)).masked_fill(padded_q, kNowhere);
    places.kv_position = places.kv_position.add(starts_of(kv, places.kv_sequence)).masked_fill(padded_kv, kNowhere);
    places.q_sequence = places.q_sequence.mul(0);
    places.kv_sequence = places.kv_sequence.mul(0);
    rule.valid_q = {std::reduce(q.begin(), q.end())};
    rule.valid_kv = {std::reduce(kv.begin(), kv.end())};
    rule.padded_q = rule.valid_q;
    rule.padded_kv = rule.valid_kv;
  }

  void lengths() {
    if (c_.pad_between_seqs) {
      mask("padding_keys_seen", "keys at padding positions take part",
           [](MaskRule& rule) { rule.padding_keys = true; });
    } else if (!has_replicated(c_)) {
      return;
    }
    for (const Ring& ring : rings_of(dense_)) {
      if (ring.size > 1) lengths_rounded(ring.size, "ranks");
      lengths_rounded(2 * ring.size, "chunks");
    }
  }

  void lengths_rounded(std::int64_t multiple, const char* what) {
    const std::string says =
        fmt::format("valid lengths are rounded down to multiples of the number of {}, {}", what, multiple);
    const ChangeRule change = [multiple](MaskRule& rule) {
      for (auto* const valid : {&rule.valid_q, &rule.valid_kv}) {
        for (std::int64_t& length : *valid) length = length / multiple * multiple;
      }
    };
    mask("lengths_rounded", says, change);
    if (!dense_.sink.defined()) return;
    // The rows that are lost do not get the sink either.
    model("lengths_rounded", says, [change](SimulatedStep& model) {
      MaskRule rule(*model.dense);
      change(rule);
      model.forward.times = model.backward.times = rule.times();
      model.sink_needs_a_key = true;
    });
  }

  // A chunk's first query is taken for one of the chunk before. If it is the first row of a rank's dual chunk, there is
  // no chunk before it and the query sees nothing.
  void first_queries_of_chunks() {
    pass(
        "chunk_boundary_off_by_one",
        "a chunk's queries begin one position late, and the first query is lost where a rank's rows begin with a chunk",
        [](const DenseProblem& dense, Pass& pass) {
          MaskRule rule(dense);
          rule.chunk_query_shift = 1;
          const at::Tensor begins = rule.diagonal_of_queries().remainder(rule.chunk).eq(0);
          const at::Tensor lost = dense.q_rows.place_in_half.eq(0).logical_and(begins);
          pass.times = rule.times().masked_fill_(lost.unsqueeze(1), 0.0);
        });
  }

  // Positions counted among the rows that a rank has of a sequence (of_chunk: among those of one chunk).
  static Places local_places(const DenseProblem& dense, bool of_chunk) {
    const auto place = [of_chunk](const Side& side) { return of_chunk ? side.place_in_half : side.place; };
    return {.q_sequence = dense.q_rows.sequence,
            .q_position = place(dense.q_rows),
            .kv_sequence = dense.kv_rows.sequence,
            .kv_position = place(dense.kv_rows)};
  }

  // Positions are counted in each rank's rows; which rows are padding stays correct.
  static void count_locally(bool queries, bool keys, MaskRule& rule) {
    const DenseProblem& dense = rule.dense;
    const Places local = local_places(dense, /*of_chunk=*/false);
    rule.valid_rows = std::pair(dense.q_rows.valid, dense.kv_rows.valid);
    if (queries) rule.places.q_position = local.q_position;
    if (keys) rule.places.kv_position = local.kv_position;
    for (std::size_t b = 0; b < rule.valid_q.size(); ++b) {
      if (queries) rule.valid_q[b] = dense.lengths().padded_q[b] / dense.ranks;
      if (keys) rule.valid_kv[b] = dense.lengths().padded_kv[b] / dense.ranks;
    }
  }

  void positions_from_zero() {
    // If the mask is only a window, the id of a window counted in local rows fits better.
    const bool window_alone = !c_.causal && c_.chunk == 0;
    const char* const id = window_alone ? "window_of_local_chunk" : "positions_from_zero";
    for (const auto& [what, queries, keys] :
         {std::tuple{"queries and keys", true, true}, {"queries", true, false}, {"keys", false, true}}) {
      mask(id, fmt::format("every rank counts the positions of its {} from 0", what),
           [queries = queries, keys = keys](MaskRule& rule) { count_locally(queries, keys, rule); });
    }
    mask(id, "the diagonal begins at each rank's first query and at the first key of the sequence", [](MaskRule& rule) {
      count_locally(/*queries=*/true, /*keys=*/false, rule);
      rule.diagonal = MaskRule::Diagonal::top_left;
    });
  }

  void windows_of_local_rows() {
    if (c_.window[0] < 0 && c_.window[1] < 0) return;
    for (const bool of_chunk : {false, true}) {
      mask("window_of_local_chunk",
           fmt::format("the window is computed from the places of queries and keys in their rank's {} instead of their "
                       "positions in the sequence",
                       of_chunk ? "chunk" : "rows"),
           [of_chunk](MaskRule& rule) { rule.window_places = local_places(rule.dense, of_chunk); });
    }
  }

  const SequenceLengths& lengths_ = dense_.lengths();
};

}  // namespace

Hypotheses mask_hypotheses(const DenseProblem& dense, const Symptoms& symptoms) {
  Hypotheses all = Masks(dense, symptoms).all();
  for (Hypothesis& hypothesis : all) hypothesis.of_mask = true;
  return all;
}

}  // namespace cp_pool::diagnosis
