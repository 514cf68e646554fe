
#include <cstdint>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pugixml.hpp>

#include "cases/comm_facts.h"
#include "cases/dual_chunk.h"
#include "driver/cli/commands/explanation.h"
#include "driver/core/case_shape.h"
#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {
namespace {

constexpr std::int64_t kPageBlocks = 64;    // a side of a mask
constexpr std::size_t kDrawnSequences = 6;  // at most, each of other lengths
constexpr std::size_t kNamedSequences = 8;  // that a caption lists
constexpr int kMostColumns = 8;             // of the table of tiles that name an owner of keys

// Sequences of the same lengths, which share one mask. `places` are their indices.
struct EqualSequences {
  std::vector<std::size_t> places;
};

std::vector<EqualSequences> different_sequences(const SequenceLengths& lengths) {
  const auto lengths_of = [&](std::size_t b) {
    return std::tuple{lengths.valid_q[b], lengths.padded_q[b], lengths.valid_kv[b], lengths.padded_kv[b]};
  };
  std::vector<EqualSequences> out;
  for (std::size_t b = 0; b < lengths.valid_q.size(); ++b) {
    const auto same = std::find_if(out.begin(), out.end(), [&](const EqualSequences& sequences) {
      return lengths_of(sequences.places.front()) == lengths_of(b);
    });
    if (same == out.end()) {
      out.push_back({{b}});
    } else {
      same->places.push_back(b);
    }
  }
  return out;
}

std::string sequences_caption(const SequenceLengths& lengths, const EqualSequences& sequences) {
  const std::size_t b = sequences.places.front();
  const std::size_t count = sequences.places.size();
  const std::vector<std::size_t> listed(
      sequences.places.begin(),
      sequences.places.begin() + static_cast<std::ptrdiff_t>(std::min(count, kNamedSequences)));
  return fmt::format("Sequence{} {}{}: queries {} of {}, keys {} of {} (valid of padded)", count == 1 ? "" : "s",
                     fmt::join(listed, ", "), count > kNamedSequences ? ", .." : "", lengths.valid_q[b],
                     lengths.padded_q[b], lengths.valid_kv[b], lengths.padded_kv[b]);
}

void append_masks(pugi::xml_node body, const Case& c, const SequenceLengths& lengths) {
  append_text(body, "h2", "Mask, owners and tiles");
  pugi::xml_node row = append(body, "div", {{"class", "row"}});
  const std::vector<EqualSequences> different = different_sequences(lengths);
  const auto tiles = static_cast<int>(dual_chunks(c.cp_size) / head_ranks(c));
  for (std::size_t i = 0; i < different.size() && i < kDrawnSequences; ++i) {
    const std::size_t b = different[i].places.front();
    append_case_mask(row, draw_case(c, lengths, b, kPageBlocks), tiles, sequences_caption(lengths, different[i]),
                     fmt::format("mask-{}", b));
  }
  if (different.size() > kDrawnSequences) {
    append_text(body, "p", fmt::format("{} more lengths are not drawn.", different.size() - kDrawnSequences));
  }
}

void append_pass(pugi::xml_node body, const std::vector<Exchange>& exchanges, Pass pass, int ranks) {
  const char* const name = pass == Pass::forward ? "Forward" : "Backward";
  append_text(body, "h3", name);
  pugi::xml_node row = append(body, "div", {{"class", "row"}});
  int number = 0;
  for (const Exchange& exchange : exchanges) {
    if (exchange.pass != pass || exchange.messages.empty()) continue;
    append_exchange(row, exchange, ranks, bytes_words(std::ranges::max(exchange.messages, {}, &Message::bytes).bytes),
                    fmt::format("exchange-{}-{}", name, ++number));
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
  append_pass(body, exchanges, Pass::forward, c.cp_size);
  if (c.training) append_pass(body, exchanges, Pass::backward, c.cp_size);
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
