#include "cases/lengths.h"

#include <limits>
#include <random>

#include "cases/dual_chunk.h"

namespace cp_pool {
namespace {

// Draws a number uniformly from 0..largest. std::uniform_int_distribution is not used, because its results differ
// between standard libraries; those of std::mt19937_64 are the same everywhere.
std::int64_t draw(std::mt19937_64& generator, std::int64_t largest) {
  const std::uint64_t values = static_cast<std::uint64_t>(largest) + 1;
  // Numbers above the last whole multiple of `values` are rejected, because they would favour the small results.
  const std::uint64_t accepted = std::numeric_limits<std::uint64_t>::max() / values * values;
  std::uint64_t number = generator();
  while (number >= accepted) number = generator();
  return static_cast<std::int64_t>(number % values);
}

std::vector<std::int64_t> draw_lengths(std::mt19937_64& generator, const Case& c, std::int64_t largest) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(c.batch));
  for (std::int64_t& length : lengths) {
    length = draw(generator, largest);
    // An even number of tokens can be a multiple of 2 * cp_size, which needs no padding; an odd one never is.
    if ((length - c.replicated) % 2 == 0) length += length > 0 ? -1 : 1;
  }
  return lengths;
}

// Pads the part of each sequence that is split over the ranks: the tokens that are not replicated.
std::vector<std::int64_t> pad(std::vector<std::int64_t> lengths, std::int64_t replicated, std::int64_t multiple) {
  for (std::int64_t& length : lengths) {
    const std::int64_t first = replicated_tokens(replicated, length);
    length = first + (length - first + multiple - 1) / multiple * multiple;
  }
  return lengths;
}

}  // namespace

SequenceLengths resolve_lengths(const Case& c) {
  SequenceLengths lengths;
  if (c.layout == Layout::thd) {
    std::mt19937_64 generator(c.seed);
    lengths.valid_q = c.seqlens ? *c.seqlens : draw_lengths(generator, c, c.seqlen_q);
    if (c.seqlens_kv) {
      lengths.valid_kv = *c.seqlens_kv;
    } else if (keys_like_queries(c)) {
      lengths.valid_kv = lengths.valid_q;
    } else {
      lengths.valid_kv = draw_lengths(generator, c, c.seqlen_kv);
    }
  } else {
    lengths.valid_q.assign(static_cast<std::size_t>(c.batch), c.seqlen_q);
    lengths.valid_kv.assign(static_cast<std::size_t>(c.batch), c.seqlen_kv);
  }
  const std::int64_t multiple = dual_chunks(c.cp_size);
  lengths.replicated_q = replicated_queries(c);
  lengths.replicated_kv = c.replicated;
  lengths.padded_q = pad(lengths.valid_q, lengths.replicated_q, multiple);
  lengths.padded_kv = pad(lengths.valid_kv, c.replicated, multiple);
  if (!c.pad_between_seqs) {
    if (keys_like_queries(c)) lengths.padded_q = lengths.padded_kv;
    lengths.valid_q = lengths.padded_q;
    lengths.valid_kv = lengths.padded_kv;
  }
  return lengths;
}

SequenceLengths without_replication(const SequenceLengths& lengths, int cp_size) {
  if (lengths.replicated_q == 0) return lengths;
  SequenceLengths whole = lengths;
  const std::int64_t multiple = dual_chunks(cp_size);
  whole.replicated_q = whole.replicated_kv = 0;
  whole.padded_q = pad(whole.valid_q, 0, multiple);
  whole.padded_kv = pad(whole.valid_kv, 0, multiple);
  return whole;
}

}  // namespace cp_pool
