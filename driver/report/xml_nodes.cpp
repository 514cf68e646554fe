#include "driver/report/xml_nodes.h"

namespace cp_pool {

void set(pugi::xml_node node, const char* name, const std::string& value) {
  node.append_attribute(name).set_value(value.c_str());
}

pugi::xml_node append_text(pugi::xml_node parent, const char* name, const std::string& text) {
  pugi::xml_node node = parent.append_child(name);
  node.append_child(pugi::node_pcdata).set_value(text.c_str());
  return node;
}

}  // namespace cp_pool
