#include "driver/reporters/diagnosis_text.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/reporters/mask_text.h"
#include "driver/reporters/text_format.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostRectangles = 3;  // of those that are missing, and as many of those in excess

void add_rectangles(const std::vector<PairRectangle>& rectangles, std::string& lines) {
  const std::size_t shown = std::min(rectangles.size(), kMostRectangles);
  for (std::size_t i = 0; i < shown; ++i) lines += rectangles[i].text + '\n';
}

std::string pairs_text(const WrongPairs& pairs) {
  std::string lines;
  add_rectangles(pairs.missing, lines);
  add_rectangles(pairs.excess, lines);
  lines += fmt::format("in all {} of a query and a key are missing, {} in excess\n",
                       count_of(static_cast<std::size_t>(pairs.missing_pairs), "pair"), pairs.excess_pairs);
  return lines;
}

// A screen holds a small one.
std::string picture_text(const MaskPicture& picture, DrawMask draw) {
  constexpr std::size_t kMostRows = 40;
  constexpr std::size_t kMostColumns = 100;
  const std::size_t columns = picture.rows.empty() ? 0 : picture.rows.front().size();
  const bool small = picture.rows.size() <= kMostRows && columns <= kMostColumns;
  if (draw == DrawMask::any || small) return mask_text(picture);
  return fmt::format("a picture of the mask has {} x {} cells: it is drawn with --verbose and in --html\n",
                     picture.rows.size(), columns);
}

}  // namespace

std::string cause_line(const Diagnosis& diagnosis) {
  if (diagnosis.certainty == Certainty::unknown) return fmt::format("cause: unknown: {}", diagnosis.cause);
  std::string line =
      fmt::format("cause{}: {}", diagnosis.certainty == Certainty::likely ? " (likely)" : "", diagnosis.cause);
  if (!diagnosis.explains.empty()) {
    line += fmt::format(" (explains {} within bounds)", fmt::join(diagnosis.explains, ", "));
  }
  if (!diagnosis.others.empty()) line += fmt::format("; or: {}", fmt::join(diagnosis.others, ", "));
  return line;
}

std::string diagnosis_text(const Diagnosis& diagnosis, DrawMask draw) {
  std::string lines;
  for (const std::string& evidence : diagnosis.evidence) lines += evidence + '\n';
  if (diagnosis.pairs) lines += pairs_text(*diagnosis.pairs);
  if (diagnosis.picture && draw != DrawMask::never) lines += picture_text(*diagnosis.picture, draw);
  return cause_line(diagnosis) + '\n' + (lines.empty() ? "" : prefix_lines(lines, "  "));
}

}  // namespace cp_pool
