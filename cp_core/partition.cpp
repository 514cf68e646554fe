#include "cp_core/partition.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "cases/dual_chunk.h"
#include "cp_core/mutation.h"

namespace cp_pool {
namespace {

std::int64_t chunk_of(int ranks, int rank, int half) {
  const int owner = CP_MUTATE(partition_owner, rank, ranks - 1 - rank);
  const int order = CP_MUTATE(dual_chunk_order, half, 1 - half);
  return CP_MUTATE(dual_chunk_mirror, dual_chunk(ranks, owner, order), order == 0 ? owner : ranks + owner);
}

std::int64_t chunk_length(std::int64_t padded, int ranks) {
  return padded / (2 * static_cast<std::int64_t>(ranks));
}

// Appends positions [begin, end) of a sequence from row `row` on, and advances `row` past them.
void append(std::vector<Run>& runs, std::int64_t& row, std::int64_t sequence, std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  if (!runs.empty() && runs.back().sequence == sequence && runs.back().end == begin) {
    runs.back().end = end;
  } else {
    runs.push_back({.sequence = sequence, .begin = begin, .end = end, .row = row});
  }
  row += end - begin;
}

void append_local(std::vector<Run>& runs, std::int64_t row, const std::vector<std::int64_t>& padded, int ranks,
                  int rank) {
  for (std::size_t b = 0; b < padded.size(); ++b) {
    const std::int64_t chunk = chunk_length(padded[b], ranks);
    for (const int half : {0, 1}) {
      const std::int64_t begin = chunk_of(ranks, rank, half) * chunk;
      append(runs, row, static_cast<std::int64_t>(b), begin, begin + chunk);
    }
  }
}

std::vector<std::vector<Run>> by_sequence(const std::vector<Run>& runs) {
  std::vector<std::vector<Run>> result;
  for (const Run& run : runs) {
    const auto b = static_cast<std::size_t>(run.sequence);
    if (b >= result.size()) result.resize(b + 1);
    result[b].push_back(run);
  }
  for (auto& of_sequence : result) std::ranges::sort(of_sequence, {}, &Run::begin);
  return result;
}

}  // namespace

std::vector<Run> local_runs(const std::vector<std::int64_t>& padded, int ranks, int rank) {
  std::vector<Run> runs;
  append_local(runs, 0, padded, ranks, rank);
  return runs;
}

std::vector<Run> local_half_runs(const std::vector<std::int64_t>& padded, int ranks, int rank, int half) {
  std::vector<Run> runs;
  std::int64_t sequence_row = 0;
  for (std::size_t b = 0; b < padded.size(); ++b) {
    const std::int64_t chunk = chunk_length(padded[b], ranks);
    const std::int64_t begin = chunk_of(ranks, rank, half) * chunk;
    std::int64_t row =
        CP_MUTATE(all_gather_step_sliced, sequence_row + half * chunk,
                  half * chunk_length(std::reduce(padded.begin(), padded.end()), ranks) + sequence_row / 2);
    append(runs, row, static_cast<std::int64_t>(b), begin, begin + chunk);
    sequence_row += 2 * chunk;
  }
  return runs;
}

std::vector<Run> whole_runs(const std::vector<std::int64_t>& padded) {
  std::vector<Run> runs;
  std::int64_t row = 0;
  for (std::size_t b = 0; b < padded.size(); ++b) append(runs, row, static_cast<std::int64_t>(b), 0, padded[b]);
  return runs;
}

std::vector<Run> gathered_runs(const std::vector<std::int64_t>& padded, int ranks, int first, int count) {
  std::vector<Run> runs;
  for (int rank = first; rank < first + count; ++rank) append_local(runs, total_rows(runs), padded, ranks, rank);
  return runs;
}

std::int64_t total_rows(const std::vector<Run>& runs) {
  return runs.empty() ? 0 : runs.back().row + runs.back().size();
}

std::vector<RowCopy> row_copies(const std::vector<Run>& source, const std::vector<Run>& target) {
  const auto sources = by_sequence(source);
  std::vector<RowCopy> copies;
  for (const Run& run : target) {
    std::int64_t position = run.begin;
    const auto b = static_cast<std::size_t>(run.sequence);
    if (b < sources.size()) {
      for (const Run& from : sources[b]) {
        if (from.end <= position) continue;
        if (from.begin > position || position == run.end) break;
        const std::int64_t count = std::min(from.end, run.end) - position;
        copies.push_back(
            {.source = from.row + position - from.begin, .target = run.row + position - run.begin, .count = count});
        position += count;
      }
    }
    if (position != run.end) {
      throw std::invalid_argument(
          fmt::format("position {} of sequence {} is not in the source rows", position, run.sequence));
    }
  }
  return copies;
}

std::vector<RowCopy> copies_of_rank(const std::vector<RowCopy>& copies, int rank, std::int64_t rows_of_a_rank) {
  const std::int64_t begin = rank * rows_of_a_rank;
  std::vector<RowCopy> result;
  for (const RowCopy& copy : copies) {
    const std::int64_t first = std::max(copy.source, begin);
    const std::int64_t end = std::min(copy.source + copy.count, begin + rows_of_a_rank);
    if (first >= end) continue;
    result.push_back({.source = first - begin, .target = copy.target + first - copy.source, .count = end - first});
  }
  return result;
}

}  // namespace cp_pool
