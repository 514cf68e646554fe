// Parts of SVG pictures in a page. Lengths are in units of the picture, which a page scales as a whole. Classes are
// those of the page's style (report/html_document.cpp). No picture relies on colour alone: it also has textures,
// heights or letters, and a title and a description for people who cannot see it.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <pugixml.hpp>

namespace cp_pool {

struct SvgFrame {
  std::string id;           // unique in the page; the ids of its parts begin with it
  std::string kind = {};    // classes beside "picture"; may be empty
  double width = 0;         // units
  double height = 0;        // units
  std::string title;        // a few words
  std::string description;  // describes the picture in sentences
};
pugi::xml_node append_svg(pugi::xml_node parent, const SvgFrame& frame);

// Formats a number with at most two digits behind the point.
std::string svg_number(double value);

struct SvgBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};
pugi::xml_node append_rect(pugi::xml_node parent, const SvgBox& box, const std::string& kind);

// `data` is the attribute d of <path>.
pugi::xml_node append_path(pugi::xml_node parent, const std::string& data, const std::string& kind);
std::string line_data(double x1, double y1, double x2, double y2);

// Appends a text that begins at x, or is centred there (class "middle") or ends there (class "end"). `y` is its base
// line.
pugi::xml_node append_label(pugi::xml_node parent, double x, double y, const std::string& text,
                            const std::string& kind = "");
// Returns the largest width that a label of this length can have, for an ordinary label or one of class "small".
double label_width(const std::string& text, bool small = false);

// Colours of bars, by Urgency.
inline constexpr std::array<std::string_view, 3> kOutcomeFills{"fill-pass", "fill-other partly", "fill-bad"};

// Adds a tooltip.
void append_hint(pugi::xml_node part, const std::string& text);

enum class Texture { hatch, cross, dots };
// Defines a texture of strokes of this class (`stroke-..`) on a transparent ground. `unit` is the length of a unit of
// the picture where the texture is used (below 1 under a transform that enlarges). Returns the value for the attribute
// "fill" of a part.
std::string append_texture(pugi::xml_node svg, const std::string& id, Texture texture, const std::string& kind,
                           double unit = 1);

// Returns the class of a rank's parts. There are eight colours, which repeat.
std::string rank_class(int rank);

}  // namespace cp_pool
