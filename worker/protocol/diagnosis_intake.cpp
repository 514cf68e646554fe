#include "worker/protocol/diagnosis_intake.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "worker/protocol/text_clean.h"

namespace cp_pool::protocol {

namespace {

constexpr std::string_view kCells = " .-+!?";  // the characters of MaskPicture::rows

std::string sentence(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\t') c = ' ';
  }
  return cut_text(text, kMaxSentenceBytes);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameBytes && text.find_first_of("\n\t") == std::string_view::npos;
}

bool is_id(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return is_name(text) && text.find_first_not_of(kLetters) == std::string_view::npos;
}

void keep_names(std::vector<std::string>& names) {
  std::vector<std::string> kept;
  for (std::string& name : names) {
    if (kept.size() == kMaxNames) break;
    if (is_name(name) && std::ranges::find(kept, name) == kept.end()) kept.push_back(std::move(name));
  }
  names = std::move(kept);
}

bool is_range(std::int64_t first, std::int64_t last) {
  return first >= 0 && first <= last;
}

bool is_well_formed(const PairRectangle& rectangle) {
  return !rectangle.text.empty() && rectangle.q_sequence >= 0 && rectangle.kv_sequence >= 0 &&
         is_range(rectangle.q_first, rectangle.q_last) && is_range(rectangle.kv_first, rectangle.kv_last);
}

// Drops rectangles that are not well formed, and returns whether there were none.
bool keep_rectangles(std::vector<PairRectangle>& rectangles) {
  const auto dropped = std::erase_if(rectangles, [](const PairRectangle& r) { return !is_well_formed(r); });
  if (rectangles.size() > kMaxSentences) rectangles.resize(kMaxSentences);
  for (PairRectangle& rectangle : rectangles) rectangle.text = sentence(std::move(rectangle.text));
  return dropped == 0;
}

// Whether the borders are ascending cells out of `cells`, without the first one.
bool are_borders(const std::vector<std::int64_t>& borders, std::size_t cells) {
  if (borders.empty()) return true;
  return std::ranges::is_sorted(borders, std::ranges::less_equal{}) && borders.front() > 0 &&
         borders.back() < static_cast<std::int64_t>(cells);
}

bool are_ranks(const std::vector<int>& ranks, std::size_t cells) {
  return ranks.size() == cells && std::ranges::all_of(ranks, [](int rank) { return rank >= -1; });
}

bool are_owners(const std::vector<std::vector<int>>& owners, std::size_t cells) {
  return owners.empty() ||
         (owners.size() == cells && std::ranges::all_of(owners, [](const std::vector<int>& ranks) {
            return std::ranges::is_sorted(ranks, std::ranges::less_equal{}) && (ranks.empty() || ranks.front() >= 0);
          }));
}

bool is_well_formed(const MaskPicture& picture) {
  const std::size_t rows = picture.rows.size();
  if (rows == 0 || rows > kMaxPictureCells || picture.q_per_cell < 1 || picture.kv_per_cell < 1) return false;
  const std::size_t columns = picture.rows.front().size();
  if (columns == 0 || columns > kMaxPictureCells) return false;
  const bool drawn = std::ranges::all_of(picture.rows, [&](const std::string& row) {
    return row.size() == columns && row.find_first_not_of(kCells) == std::string::npos;
  });
  return drawn && are_borders(picture.q_borders, rows) && are_borders(picture.kv_borders, columns) &&
         are_ranks(picture.q_ranks, rows) && are_ranks(picture.kv_ranks, columns) &&
         are_owners(picture.q_owners, rows) && are_owners(picture.kv_owners, columns);
}

bool is_well_formed(const ErrorStrip& strip) {
  return is_name(strip.tensor) && strip.rank >= 0 && strip.rows_per_cell >= 1 && !strip.by_row.empty() &&
         strip.by_row.size() <= kMaxStripCells && strip.by_head.size() <= kMaxStripCells &&
         are_borders(strip.borders, strip.by_row.size());
}

void keep_on_the_scale(std::vector<double>& ratios) {
  for (double& ratio : ratios) {
    // A NaN compares false and so counts as off the scale, like an infinity.
    if (!(ratio <= ErrorStrip::kOffTheScale)) ratio = ErrorStrip::kOffTheScale;
    ratio = std::max(ratio, 0.0);
  }
}

}  // namespace

Diagnosis unknown_diagnosis(std::string cause) {
  Diagnosis out;
  out.cause = sentence(std::move(cause));
  return out;
}

Diagnosis well_formed(Diagnosis diagnosis) {
  const bool unknown = diagnosis.certainty == Certainty::unknown;
  diagnosis.cause = sentence(std::move(diagnosis.cause));
  if (diagnosis.cause.empty()) return unknown_diagnosis("the worker's diagnosis names no cause");
  if (unknown) diagnosis.id = Diagnosis::kUnknown;
  if (!is_id(diagnosis.id) || (!unknown && diagnosis.id == Diagnosis::kUnknown)) {
    return unknown_diagnosis(
        fmt::format("the worker's diagnosis has no usable id: \"{}\"", cut_text(diagnosis.id, kMaxNameBytes)));
  }
  keep_names(diagnosis.explains);
  keep_names(diagnosis.others);
  for (std::string& evidence : diagnosis.evidence) evidence = sentence(std::move(evidence));
  std::vector<std::string> dropped;
  const auto drop = [&](const char* what) { dropped.push_back(fmt::format("{} not well formed", what)); };
  if (auto& pairs = diagnosis.pairs) {
    pairs->missing_pairs = std::max<std::int64_t>(pairs->missing_pairs, 0);
    pairs->excess_pairs = std::max<std::int64_t>(pairs->excess_pairs, 0);
    const bool missing = keep_rectangles(pairs->missing);
    if (!keep_rectangles(pairs->excess) || !missing) drop("some of the worker's rectangles of pairs are");
  }
  if (diagnosis.picture && !is_well_formed(*diagnosis.picture)) {
    diagnosis.picture.reset();
    drop("the worker's picture of the mask is");
  }
  if (std::erase_if(diagnosis.strips, [](const ErrorStrip& strip) { return !is_well_formed(strip); }) > 0) {
    drop("some of the worker's strips of errors are");
  }
  if (diagnosis.strips.size() > kMaxSentences) diagnosis.strips.resize(kMaxSentences);
  for (ErrorStrip& strip : diagnosis.strips) {
    keep_on_the_scale(strip.by_row);
    keep_on_the_scale(strip.by_head);
  }
  // The worker's sentences make room for the notes on what was dropped, which nothing else tells.
  const std::size_t room = kMaxSentences - dropped.size();
  if (diagnosis.evidence.size() > room) diagnosis.evidence.resize(room);
  std::ranges::move(dropped, std::back_inserter(diagnosis.evidence));
  if (!std::isfinite(diagnosis.ms) || diagnosis.ms < 0) diagnosis.ms = 0;
  return diagnosis;
}

}  // namespace cp_pool::protocol
