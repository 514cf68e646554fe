#include "driver/reporters/xml_nodes.h"

#include "worker/protocol/text_clean.h"

namespace cp_pool {

std::string plain(std::string_view text) {
  return protocol::clean_text(text, protocol::Ansi::strip);
}

void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(plain(value).c_str());
}

pugi::xml_node append_text(pugi::xml_node parent, const char* name, const std::string& text) {
  pugi::xml_node node = parent.append_child(name);
  node.append_child(pugi::node_pcdata).set_value(text.c_str());
  return node;
}

}  // namespace cp_pool
