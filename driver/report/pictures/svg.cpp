#include "driver/report/pictures/svg.h"

#include <cmath>

#include <fmt/format.h>

#include "driver/report/text_format.h"
#include "driver/report/xml_nodes.h"

namespace cp_pool {

namespace {

constexpr double kTextureSize = 6;

std::string texture_data(Texture texture) {
  switch (texture) {
    case Texture::hatch:
      return "M0 3H6";
    case Texture::cross:
      return "M0 3H6M3 0V6";
    case Texture::dots:
      return "M2.3 3H3.7";
  }
  return "";
}

void set_class(pugi::xml_node node, const std::string& kind) {
  if (!kind.empty()) set(node, "class", kind);
}

}  // namespace

std::string svg_number(double value) {
  constexpr double kHundredth = 100;
  return fmt::format("{:.8g}", std::round(value * kHundredth) / kHundredth);
}

pugi::xml_node append_svg(pugi::xml_node parent, const SvgFrame& frame) {
  pugi::xml_node svg = parent.append_child("svg");
  set(svg, "id", frame.id);
  set(svg, "class", frame.kind.empty() ? "picture" : "picture " + frame.kind);
  set(svg, "viewBox", fmt::format("0 0 {} {}", svg_number(frame.width), svg_number(frame.height)));
  set(svg, "width", svg_number(frame.width));
  set(svg, "height", svg_number(frame.height));
  set(svg, "role", "img");
  set(svg, "aria-labelledby", fmt::format("{0}-title {0}-desc", frame.id));
  set(append_text(svg, "title", frame.title), "id", frame.id + "-title");
  set(append_text(svg, "desc", frame.description), "id", frame.id + "-desc");
  return svg;
}

pugi::xml_node append_rect(pugi::xml_node parent, const SvgBox& box, const std::string& kind) {
  pugi::xml_node rect = parent.append_child("rect");
  set(rect, "x", svg_number(box.x));
  set(rect, "y", svg_number(box.y));
  set(rect, "width", svg_number(box.width));
  set(rect, "height", svg_number(box.height));
  set_class(rect, kind);
  return rect;
}

pugi::xml_node append_path(pugi::xml_node parent, const std::string& data, const std::string& kind) {
  pugi::xml_node path = parent.append_child("path");
  set(path, "d", data);
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
  pugi::xml_node pattern = svg.append_child("pattern");
  set(pattern, "id", id);
  set(pattern, "width", svg_number(kTextureSize));
  set(pattern, "height", svg_number(kTextureSize));
  set(pattern, "patternUnits", "userSpaceOnUse");
  set(pattern, "patternTransform", fmt::format("scale({:.4g}) rotate(-45)", unit));
  append_path(pattern, texture_data(texture), "texture " + kind);
  return fmt::format("url(#{})", id);
}

}  // namespace cp_pool
