#include "driver/report/pictures/svg.h"

#include <cmath>

#include <fmt/format.h>

#include "driver/report/html_document.h"
#include "driver/report/text_format.h"

namespace cp_pool {
namespace {

constexpr double kTextureSize = 6;

constexpr std::array kTextures{"M0 3H6", "M0 3H6M3 0V6", "M2.3 3H3.7"};  // path data of each Texture

void set_class(pugi::xml_node node, const std::string& kind) {
  if (!kind.empty()) set(node, "class", kind);
}

}  // namespace

std::string svg_number(double value) {
  constexpr double kHundredth = 100;
  return fmt::format("{:.8g}", std::round(value * kHundredth) / kHundredth);
}

pugi::xml_node append_svg(pugi::xml_node parent, const SvgFrame& frame) {
  const std::string width = svg_number(frame.width);
  const std::string height = svg_number(frame.height);
  pugi::xml_node svg = append(parent, "svg",
                              {{"id", frame.id},
                               {"class", frame.kind.empty() ? "picture" : "picture " + frame.kind},
                               {"viewBox", fmt::format("0 0 {} {}", width, height)},
                               {"width", width},
                               {"height", height},
                               {"role", "img"},
                               {"aria-labelledby", fmt::format("{0}-title {0}-desc", frame.id)}});
  set(append_text(svg, "title", frame.title), "id", frame.id + "-title");
  set(append_text(svg, "desc", frame.description), "id", frame.id + "-desc");
  return svg;
}

pugi::xml_node append_rect(pugi::xml_node parent, const SvgBox& box, const std::string& kind) {
  pugi::xml_node rect = append(parent, "rect",
                               {{"x", svg_number(box.x)},
                                {"y", svg_number(box.y)},
                                {"width", svg_number(box.width)},
                                {"height", svg_number(box.height)}});
  set_class(rect, kind);
  return rect;
}

pugi::xml_node append_path(pugi::xml_node parent, const std::string& data, const std::string& kind) {
  pugi::xml_node path = append(parent, "path", {{"d", data}});
  set_class(path, kind);
  return path;
}

std::string line_data(double x1, double y1, double x2, double y2) {
  return fmt::format("M{} {}L{} {}", svg_number(x1), svg_number(y1), svg_number(x2), svg_number(y2));
}

pugi::xml_node append_label(pugi::xml_node parent, double x, double y, const std::string& text,
                            const std::string& kind) {
  pugi::xml_node label = append_text(parent, "text", text);
  set(label, "x", svg_number(x));
  set(label, "y", svg_number(y));
  set_class(label, kind);
  return label;
}

double label_width(const std::string& text, bool small) {
  constexpr double kLetter = 6.5;
  constexpr double kSmallLetter = 5.4;
  return static_cast<double>(width_of(text)) * (small ? kSmallLetter : kLetter);
}

void append_hint(pugi::xml_node part, const std::string& text) {
  append_text(part, "title", text);
}

std::string append_texture(pugi::xml_node svg, const std::string& id, Texture texture, const std::string& kind,
                           double unit) {
  const std::string size = svg_number(kTextureSize);
  const std::string transform = fmt::format("scale({:.4g}) rotate(-45)", unit);
  append_path(append(svg, "pattern",
                     {{"id", id},
                      {"width", size},
                      {"height", size},
                      {"patternUnits", "userSpaceOnUse"},
                      {"patternTransform", transform}}),
              kTextures.at(static_cast<std::size_t>(texture)), "texture " + kind);
  return fmt::format("url(#{})", id);
}

std::string rank_class(int rank) {
  constexpr int kColors = 8;
  return rank < 0 ? "every-rank" : fmt::format("r{}", rank % kColors);
}

}  // namespace cp_pool
