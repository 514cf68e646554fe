// Parts of SVG pictures in a page. Units are those of the picture, which a page scales as a whole; classes are those of
// the page's style (reporters/html_document.cpp). A picture does not tell by colour alone: it has textures, heights or
// letters beside it, and a title and a description for those who do not see it.
#pragma once

#include <string>

#include <pugixml.hpp>

namespace cp_pool {

struct SvgFrame {
  std::string id;           // of this picture in its page; ids of its parts begin with it
  std::string kind;         // classes beside "picture"; may be empty
  double width = 0;         // units
  double height = 0;        // units
  std::string title;        // a few words
  std::string description;  // what there is to be seen, in sentences
};
pugi::xml_node append_svg(pugi::xml_node parent, const SvgFrame& frame);

// At most two digits behind the point.
std::string svg_number(double value);

struct SvgBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};
pugi::xml_node append_rect(pugi::xml_node parent, const SvgBox& box, const std::string& kind);

// data: as <path d="..">.
pugi::xml_node append_path(pugi::xml_node parent, const std::string& data, const std::string& kind);
std::string line_data(double x1, double y1, double x2, double y2);

// The text begins at x (class "middle" and "end": is centred there, ends there); y: its base line.
pugi::xml_node append_label(pugi::xml_node parent, double x, double y, const std::string& text,
                            const std::string& kind = "");
// How wide a label of so many letters is at most, for an ordinary one and for class "small".
double label_width(const std::string& text, bool small = false);

// What a browser shows under the pointer.
void append_hint(pugi::xml_node part, const std::string& text);

enum class Texture { hatch, cross, dots };
// Defines a texture of strokes of this class (`stroke-..`), on nothing. unit: how long a unit of the picture is in the
// place where it is used (below 1 under a transform that enlarges). Returns what a part names in its attribute "fill".
std::string append_texture(pugi::xml_node svg, const std::string& id, Texture texture, const std::string& kind,
                           double unit = 1);

}  // namespace cp_pool
