#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "driver/report/html_document.h"
#include "driver/report/pictures/pictures.h"
#include "driver/report/pictures/svg.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr std::size_t kMostMessages = 72;  // those of 9 ranks to each other
constexpr std::size_t kMostLabels = 4;

// All lengths are in units of the picture.
constexpr double kBoxWidth = 44;
constexpr double kBoxHeight = 20;
constexpr double kSmallBox = 18;  // length of a side
constexpr int kMostLargeBoxes = 12;
constexpr double kLeastRadius = 70;
constexpr double kBoxGap = 8;

using PicturePoint = std::complex<double>;  // x and y

struct RankCircle {
  int ranks;
  bool large = ranks <= kMostLargeBoxes;
  double box_width = large ? kBoxWidth : kSmallBox;
  double box_height = large ? kBoxHeight : kSmallBox;
  double radius = std::max(kLeastRadius, (box_width + kBoxGap) * ranks / (2 * std::numbers::pi));
  double width = 2 * radius + box_width + 2 * kBoxGap;
  double height = 2 * radius + box_height + 2 * kBoxGap;

  // Returns the place of a rank. Rank 0 is on top, or on the left if there are two ranks; the others follow clockwise.
  [[nodiscard]] PicturePoint place(int rank) const {
    const double first = ranks == 2 ? std::numbers::pi : -std::numbers::pi / 2;
    const double angle = first + 2 * std::numbers::pi * rank / ranks;
    return PicturePoint{width / 2, height / 2} + std::polar(radius, angle);
  }
};

// Returns the point where a line to `towards` leaves the box of the rank at `from`.
PicturePoint edge_of(const RankCircle& circle, const PicturePoint& from, const PicturePoint& towards) {
  const PicturePoint line = towards - from;
  constexpr double kFromBox = 3;
  // Infinite along a line that is upright or level.
  const double across = (circle.box_width / 2 + kFromBox) / std::abs(line.real());
  const double down = (circle.box_height / 2 + kFromBox) / std::abs(line.imag());
  return from + std::min({across, down, 0.5}) * line;
}

std::string append_arrow_head(pugi::xml_node svg, const std::string& id) {
  const std::string name = id + "-head";
  append_path(append(svg, "marker",
                     {{"id", name},
                      {"viewBox", "0 0 8 8"},
                      {"refX", "7"},
                      {"refY", "4"},
                      {"markerWidth", "7"},
                      {"markerHeight", "7"},
                      {"orient", "auto-start-reverse"}}),
              "M0 0L8 4L0 8z", "fill-ink");
  return fmt::format("url(#{})", name);
}

// Appends an arrow, with two heads if `both` says that a message goes each way. Returns the middle of the line.
PicturePoint append_arrow(pugi::xml_node svg, const RankCircle& circle, const Message& message, bool both,
                          const std::string& head, const std::string& bytes) {
  const PicturePoint from = circle.place(message.from);
  const PicturePoint to = circle.place(message.to);
  const PicturePoint begin = edge_of(circle, from, to);
  const PicturePoint end = edge_of(circle, to, from);
  pugi::xml_node arrow = append_path(svg, line_data(begin.real(), begin.imag(), end.real(), end.imag()), "edge");
  set(arrow, "marker-end", head);
  if (both) set(arrow, "marker-start", head);
  std::string words = fmt::format("rank {} to rank {}: {}", message.from, message.to, bytes);
  if (both) words += fmt::format(", and as much from rank {} to rank {}", message.to, message.from);
  append_hint(arrow, words);
  return (begin + end) / 2.0;
}

void append_ranks(pugi::xml_node svg, const RankCircle& circle) {
  constexpr double kBelowMiddle = 3.5;
  for (int rank = 0; rank < circle.ranks; ++rank) {
    const PicturePoint place = circle.place(rank);
    pugi::xml_node box = append_rect(svg,
                                     {.x = place.real() - circle.box_width / 2,
                                      .y = place.imag() - circle.box_height / 2,
                                      .width = circle.box_width,
                                      .height = circle.box_height},
                                     rank_class(rank) + " bordered");
    set(box, "rx", "4");
    append_label(svg, place.real(), place.imag() + kBelowMiddle,
                 circle.large ? fmt::format("rank {}", rank) : std::to_string(rank),
                 circle.large ? "middle" : "small middle");
  }
}

}  // namespace

void append_exchange(pugi::xml_node parent, const Exchange& exchange, int ranks, const std::string& bytes,
                     const std::string& id) {
  const bool first_alone = exchange.messages.size() > kMostMessages;
  const RankCircle circle{ranks};
  std::string caption = fmt::format("{}. {} an arrow", exchange.what, bytes);
  if (exchange.times > 1) caption += fmt::format(", {} times", exchange.times);
  caption += first_alone ? "; only those of rank 0 are drawn, the other ranks send alike." : ".";
  pugi::xml_node figure = append(parent, "figure", {{"class", "exchange"}});
  append_text(figure, "figcaption", caption);
  pugi::xml_node svg =
      append_svg(figure, {.id = id,
                          .width = circle.width,
                          .height = circle.height,
                          .title = exchange.what,
                          .description = fmt::format("{} between {}. {}", count_of(exchange.messages.size(), "message"),
                                                     count_of(ranks, "rank"), caption)});
  const std::string head = append_arrow_head(svg, id);
  std::set<std::pair<int, int>> ends;
  std::set<std::pair<long, long>> labelled;
  for (const Message& message : exchange.messages) ends.emplace(message.from, message.to);
  for (const Message& message : exchange.messages) {
    const bool both = ends.contains({message.to, message.from});
    if (both && message.from > message.to) continue;
    if (first_alone && message.from != 0) continue;
    const PicturePoint middle = append_arrow(svg, circle, message, both, head, bytes);
    // Where lines cross, one label is enough.
    if (exchange.messages.size() <= kMostLabels &&
        labelled.emplace(std::lround(middle.real()), std::lround(middle.imag())).second) {
      append_label(svg, middle.real(), middle.imag() - 4, both ? bytes + " each way" : bytes, "small middle halo");
    }
  }
  append_ranks(svg, circle);
}

}  // namespace cp_pool
