#include "driver/cli/commands/explanation.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pugixml.hpp>

#include "cases/backend_facts.h"
#include "cases/case_groups.h"
#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "driver/core/case_shape.h"
#include "driver/core/figures.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kDrawnBlocks = 32;    // a side of a mask, unless the ranks have more chunks
constexpr std::size_t kListedSequences = 8;  // in the text, and in a caption

// Marks tokens that every rank has.
constexpr char kEveryRank = '*';

char owner_letter(int rank) {
  return rank == CaseDrawing::kEveryRank ? kEveryRank : rank_letter(rank);
}

// Format a count with its unit: "64.0 KiB", "1.23 GFLOP".
std::string bytes_words(std::int64_t count) {
  constexpr double kKib = 1024;
  const auto value = static_cast<double>(count);
  if (value < kKib) return fmt::format("{} B", count);
  if (value < kKib * kKib) return fmt::format("{:.1f} KiB", value / kKib);
  if (value < kKib * kKib * kKib) return fmt::format("{:.1f} MiB", value / kKib / kKib);
  return fmt::format("{:.2f} GiB", value / kKib / kKib / kKib);
}

std::string flops_words(double count) {
  for (const auto& [unit, size] : {std::pair{"TFLOP", 1e12}, std::pair{"GFLOP", 1e9}, std::pair{"MFLOP", 1e6}}) {
    if (count >= size) return fmt::format("{:.2f} {}", count / size, unit);
  }
  return fmt::format("{:.1f} kFLOP", count / 1e3);
}

std::string window_side(std::int64_t keys) {
  return keys == kInfiniteWindow ? "all" : std::to_string(keys);
}

std::string mask_words(const Case& c) {
  if (!c.mask.empty()) {
    std::string slices;
    for (const auto& [queries, keys, type] : c.mask) {
      slices += fmt::format("{}queries {}..{} and keys {}..{} {}", slices.empty() ? "" : "; ", queries.begin,
                            queries.end - 1, keys.begin, keys.end - 1, to_string(type));
    }
    return slices;
  }
  std::string words = c.causal ? "causal" : "not causal";
  if (c.window != std::array<std::int64_t, 2>{kInfiniteWindow, kInfiniteWindow}) {
    words += fmt::format(", window: {} keys to the left and {} to the right", window_side(c.window[0]),
                         window_side(c.causal ? 0 : c.window[1]));
  }
  if (c.chunk > 0) words += fmt::format(", chunks of {} positions", c.chunk);
  return words;
}

// Lists the world ranks of each group, since the rest of the text is about the first group and numbers its ranks. Empty
// if there is one group.
std::string groups(const Case& c) {
  if (c.group == 1) return {};
  std::string text =
      fmt::format("  {} groups at once, in a world of {}; below, ranks of the first:\n", c.group, world_size(c));
  const auto ranks = groups_of(division_of(c));
  for (int group = 0; group < c.group; ++group) {
    const Case own = case_of_group(c, group);
    text += fmt::format("    group {}, seed {}: world ranks {}", group, own.seed,
                        fmt::join(ranks[static_cast<std::size_t>(group)], " "));
    text += c.group_lengths ? fmt::format(", lengths {}\n", fmt::join(*own.seqlens, " ")) : "\n";
  }
  return text;
}

std::string sequences(const SequenceLengths& lengths) {
  std::string text = "sequences (valid of padded)\n";
  for (std::size_t b = 0; b < lengths.valid_q.size() && b < kListedSequences; ++b) {
    text += fmt::format("  {:>3}: q {} of {}, k and v {} of {}\n", b, lengths.valid_q[b], lengths.padded_q[b],
                        lengths.valid_kv[b], lengths.padded_kv[b]);
  }
  if (lengths.valid_q.size() > kListedSequences) {
    text += fmt::format("  .. and {} more\n", lengths.valid_q.size() - kListedSequences);
  }
  return text;
}

std::string intervals_of(int rank, std::int64_t padded, std::int64_t replicated, int ranks, std::string_view side) {
  std::string text;
  if (replicated > 0) text += fmt::format(" {} [0, {})", side, replicated);
  for (const Interval& chunk : owned_chunks(padded - replicated, ranks, rank)) {
    if (replicated > 0 && chunk.size() == 0) continue;
    text += fmt::format(" {} [{}, {})", side, replicated + chunk.begin, replicated + chunk.end);
  }
  return text;
}

std::size_t longest_of(const SequenceLengths& lengths) {
  return static_cast<std::size_t>(std::ranges::max_element(lengths.valid_q) - lengths.valid_q.begin());
}

std::string ownership(const Case& c, const SequenceLengths& lengths, std::size_t sequence) {
  const std::int64_t replicated_q = replicated_tokens(lengths.replicated_q, lengths.valid_q[sequence]);
  const std::int64_t replicated_kv = replicated_tokens(lengths.replicated_kv, lengths.valid_kv[sequence]);
  std::string text = fmt::format("who owns what of sequence {}: {}rank r the chunks r and {} - r of {}\n", sequence,
                                 has_replicated(c) ? "every rank the replicated tokens, of the rest " : "",
                                 dual_chunks(c.cp_size) - 1, dual_chunks(c.cp_size));
  for (int rank = 0; rank < c.cp_size; ++rank) {
    text += fmt::format("  rank {}:{}{}\n", rank,
                        intervals_of(rank, lengths.padded_q[sequence], replicated_q, c.cp_size, "q"),
                        intervals_of(rank, lengths.padded_kv[sequence], replicated_kv, c.cp_size, "kv"));
  }
  return text;
}

// True if contributions to dk and dv may be sent in the 16 bits to which the kernel rounded them. The traffic counts
// them as fp32.
bool may_send_less(const Case& c) {
  return c.training && facts_of(c.comm).sums_dkv && facts_of(c.backend).rounds_calls && c.dtype != DType::fp32;
}

std::string share_line(const std::vector<std::int64_t>& pairs) {
  const std::optional<LargestShare> share = largest_share(pairs);
  return share ? fmt::format("  largest share: {}\n", share->text()) : "";
}

std::string work(const Case& c, const SequenceLengths& lengths) {
  const Traffic traffic = traffic_of(c, lengths);
  std::string text = fmt::format("exchange: {}\n  each rank sends {}{} forward", exchange_words(c),
                                 has_uneven_heads(c) ? "at most " : "", bytes_words(traffic.forward));
  if (c.training) text += fmt::format(", {} backward", bytes_words(traffic.backward));
  if (may_send_less(c)) text += " (at most: dk and dv count as fp32)";
  if (c.bias) text += ", without what the bias and its gradient need";
  if (has_replicated(c) && !merges_parts(c)) {
    text += "\n  this includes rows that ranks gather to compute whole sequences and to return the replicated tokens";
  }
  text += "\ncompute: tiles are pairs of a chunk of queries and a chunk of keys\n";
  std::vector<std::int64_t> pairs;
  for (int rank = 0; rank < c.cp_size; ++rank) {
    const Compute compute = compute_of(c, lengths, rank);
    text += fmt::format("  rank {}: {} full, {} banded, {} empty tiles; {} visible pairs x {} heads: {} forward", rank,
                        compute.full_tiles, compute.band_tiles, compute.empty_tiles, compute.pairs, compute.heads,
                        flops_words(compute.forward_flops(c)));
    if (c.training) text += fmt::format(", {} backward", flops_words(compute.backward_flops(c)));
    text += '\n';
    pairs.push_back(compute.pairs * compute.heads);
  }
  return text + share_line(pairs);
}

std::string mask(const Case& c, const SequenceLengths& lengths, bool owners) {
  // The longest sequence shows most of the mask.
  const std::size_t longest = longest_of(lengths);
  const CaseDrawing drawing = draw_case(c, lengths, longest, kDrawnBlocks);
  std::string own;
  if (owners) own = "; and who owns them";
  if (owners && has_replicated(c)) own += fmt::format(" ({}: the replicated tokens, as one)", kEveryRank);
  return fmt::format(
             "mask of sequence {}, queries down, keys across, a character for {} x {}: # all visible, + some, . "
             "none{}\n",
             longest, drawing.q_per_block, drawing.kv_per_block, own) +
         draw_mask(c, lengths, longest, owners);
}

std::string describe_case(const Case& c) {
  std::string text = fmt::format("  {} of {} ranks, {} backend, {}, layout {}, {}\n", to_string(c.comm), c.cp_size,
                                 to_string(c.backend), to_string(c.dtype), to_string(c.layout),
                                 c.training ? "forward and backward" : "forward only");
  text += groups(c);
  if (c.inner != kPair) text += fmt::format("  inner: {} ranks in a row exchange tokens for heads\n", c.inner);
  text += fmt::format("  {} heads, {} of k and v; head dims {} (q, k) and {} (v)\n", c.heads, c.kv_heads, c.head_dim_qk,
                      c.head_dim_v);
  text += fmt::format("  mask: {}\n", mask_words(c));
  text +=
      fmt::format("  softmax {}, bias {}{}{}, seed {}\n", to_string(c.softmax), c.bias ? to_string(*c.bias) : "none",
                  c.max_logit ? ", max_logit" : "", c.deterministic ? ", deterministic" : "", c.seed);
  if (c.input_scale != 1) text += fmt::format("  input_scale {}: of q and k\n", c.input_scale);
  if (c.score_offset != 0) text += fmt::format("  score_offset {}: is added to every score\n", c.score_offset);
  if (c.softcap != 0) text += fmt::format("  softcap {0}: scores s become {0} tanh(s / {0})\n", c.softcap);
  if (c.fp8) {
    text += fmt::format("  fp8: q, k, v and probabilities in e4m3{}, {} scaling{}\n",
                        c.fp8->backward ? ", dout and score gradients in e5m2" : "; the backward is not in FP8",
                        to_string(c.fp8->scaling), c.fp8->output == Fp8Output::fp8 ? ", results rounded to FP8" : "");
  }
  if (c.all_queries) text += "  all_queries: every rank has all queries, and only keys are cut\n";
  if (c.replicated > 0) {
    text += fmt::format("  replicated: the first {} {} of each sequence are on every rank\n", c.replicated,
                        c.all_queries ? "keys" : "tokens");
  }
  return text;
}

// --- The page ---

constexpr std::int64_t kPageBlocks = 64;    // a side of a mask
constexpr std::size_t kDrawnSequences = 6;  // at most, each of other lengths
constexpr int kMostColumns = 8;             // of the table of tiles that name an owner of keys

// Indices of sequences of the same lengths, which share one mask.
using EqualSequences = std::vector<std::size_t>;

std::vector<EqualSequences> different_sequences(const SequenceLengths& lengths) {
  const auto lengths_of = [&](std::size_t b) {
    return std::tuple{lengths.valid_q[b], lengths.padded_q[b], lengths.valid_kv[b], lengths.padded_kv[b]};
  };
  std::vector<EqualSequences> out;
  for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
    const auto same = std::ranges::find_if(
        out, [&](const EqualSequences& sequences) { return lengths_of(sequences.front()) == lengths_of(b); });
    (same == out.end() ? out.emplace_back() : *same).push_back(b);
  }
  return out;
}

std::string sequences_caption(const SequenceLengths& lengths, const EqualSequences& sequences) {
  const std::size_t b = sequences.front();
  const std::size_t count = sequences.size();
  const auto listed = std::span(sequences).first(std::min(count, kListedSequences));
  return fmt::format("Sequence{} {}{}: queries {} of {}, keys {} of {} (valid of padded)", count == 1 ? "" : "s",
                     fmt::join(listed, ", "), count > kListedSequences ? ", .." : "", lengths.valid_q[b],
                     lengths.padded_q[b], lengths.valid_kv[b], lengths.padded_kv[b]);
}

void append_masks(pugi::xml_node body, const Case& c, const SequenceLengths& lengths) {
  append_text(body, "h2", "Mask, owners and tiles");
  pugi::xml_node row = append(body, "div", {{"class", "row"}});
  const std::vector<EqualSequences> different = different_sequences(lengths);
  const auto tiles = static_cast<int>(dual_chunks(c.cp_size) / head_ranks(c));
  for (std::size_t i = 0; i < different.size() && i < kDrawnSequences; ++i) {
    const std::size_t b = different[i].front();
    append_case_mask(row, draw_case(c, lengths, b, kPageBlocks), tiles, sequences_caption(lengths, different[i]),
                     fmt::format("mask-{}", b));
  }
  if (different.size() > kDrawnSequences) {
    append_text(body, "p", fmt::format("{} more lengths are not drawn.", different.size() - kDrawnSequences));
  }
}

void append_exchanges(pugi::xml_node body, const Case& c, const SequenceLengths& lengths) {
  append_text(body, "h2", "Exchanges");
  append_text(body, "p", fmt::format("{}: {}.", to_string(c.comm), exchange_words(c)));
  const std::vector<Exchange> exchanges = exchanges_of(c, lengths);
  if (exchanges.empty()) {
    append_text(body, "p", "One rank sends nothing.");
    return;
  }
  for (const auto& [pass, name] : {std::pair{Pass::forward, "Forward"}, std::pair{Pass::backward, "Backward"}}) {
    if (pass == Pass::backward && !c.training) continue;
    append_text(body, "h3", name);
    pugi::xml_node row = append(body, "div", {{"class", "row"}});
    int number = 0;
    for (const Exchange& exchange : exchanges) {
      if (exchange.pass != pass || exchange.messages.empty()) continue;
      const std::int64_t bytes = std::ranges::max(exchange.messages, {}, &Message::bytes).bytes;
      append_exchange(row, exchange, c.cp_size, bytes_words(bytes), fmt::format("exchange-{}-{}", name, ++number));
    }
  }
}

std::string tile_words(const Compute& compute) {
  return fmt::format("{} full, {} banded, {} empty", compute.full_tiles, compute.band_tiles, compute.empty_tiles);
}

void append_compute(pugi::xml_node body, const Case& c, const SequenceLengths& lengths) {
  append_text(body, "h2", "Compute");
  append_text(
      body, "p",
      "Tiles are pairs of a chunk of queries and a chunk of keys. Full: every query sees every key; banded: some "
      "see some; empty: nothing to compute.");
  const int groups = c.cp_size / head_ranks(c);
  const bool by_owner = groups > 1 && groups <= kMostColumns;
  std::vector<std::string> head{"rank", "tiles", "visible pairs", "heads", "forward"};
  if (c.training) head.emplace_back("backward");
  for (int owner = 0; by_owner && owner < groups; ++owner) {
    head.push_back(head_ranks(c) == 1 ? fmt::format("with keys of rank {}", owner)
                                      : fmt::format("with keys of ranks {} to {}", owner * head_ranks(c),
                                                    (owner + 1) * head_ranks(c) - 1));
  }
  pugi::xml_node table = append_table(body, head);
  for (int rank = 0; rank < c.cp_size; ++rank) {
    const Compute compute = compute_of(c, lengths, rank);
    pugi::xml_node row = table.append_child("tr");
    append_cell(row, std::to_string(rank), "number");
    append_cell(row, tile_words(compute));
    append_cell(row, std::to_string(compute.pairs), "number");
    append_cell(row, std::to_string(compute.heads), "number");
    append_cell(row, flops_words(compute.forward_flops(c)), "number");
    if (c.training) append_cell(row, flops_words(compute.backward_flops(c)), "number");
    for (int owner = 0; by_owner && owner < groups; ++owner) {
      append_cell(row, tile_words(compute_with(c, lengths, rank, owner)));
    }
  }
}

}  // namespace

std::string draw_mask(const Case& c, const SequenceLengths& lengths, std::size_t sequence, bool owners) {
  const CaseDrawing drawing = draw_case(c, lengths, sequence, kDrawnBlocks);
  if (drawing.rows.empty()) return "  (empty)\n";
  std::string text;
  if (owners) {
    text = fmt::format("  {:>6} ", "");
    for (const int rank : drawing.kv_ranks) text += owner_letter(rank);
    text += '\n';
  }
  for (std::size_t i = 0; i < drawing.rows.size(); ++i) {
    text += fmt::format("  {:>6} {}", drawing.q_begins[i], drawing.rows[i]);
    if (owners) text += fmt::format(" {}", owner_letter(drawing.q_ranks[i]));
    text += '\n';
  }
  return text;
}

std::string explain_case(const std::string& id, const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  return id + '\n' + describe_case(c) + sequences(lengths) + mask(c, lengths, true) +
         ownership(c, lengths, longest_of(lengths)) + work(c, lengths);
}

std::string explain_case(const std::string& id, const Case& c, const std::string& adapter,
                         const AdapterOutlook& outlook) {
  const SequenceLengths lengths = resolve_lengths(c);
  std::string text = id + '\n' + describe_case(c) + sequences(lengths) + mask(c, lengths, false);
  if (!outlook.skip.empty()) return text + fmt::format("{} skips this case: {}\n", adapter, outlook.skip);
  text += fmt::format("compute: what the rows and heads of {} give to each rank\n", adapter);
  for (std::size_t rank = 0; rank < outlook.pairs.size(); ++rank) {
    text += fmt::format("  rank {}: {} visible pairs over its heads\n", rank, outlook.pairs[rank]);
  }
  return text + share_line(outlook.pairs);
}

std::string explanation_page(const std::string& id, const Case& c) {
  const SequenceLengths lengths = resolve_lengths(c);
  const HtmlDocument document("cp-pool explain: " + id);
  pugi::xml_node body = document.body();
  append_text(body, "h1", id);
  append_text(body, "pre", describe_case(c));
  append_masks(body, c, lengths);
  append_exchanges(body, c, lengths);
  append_compute(body, c, lengths);
  append_text(body, "h2", "As text");
  set(append_text(body, "pre", explain_case(id, c)), "class", "wide");
  return document.text();
}

}  // namespace cp_pool
