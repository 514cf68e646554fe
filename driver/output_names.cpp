#include "driver/output_names.h"

#include <fmt/format.h>

namespace cp_pool {

void OutputNames::add(std::size_t index, const Item& named) {
  std::string name = named.id;
  if (named.runs > 1) name += fmt::format(" (run {} of {})", named.run, named.runs);
  const int times = ++times_[name];
  if (times > 1) name += fmt::format(" (#{})", times);
  if (name != named.id) own_[index] = std::move(name);
}

std::string OutputNames::own_name(std::size_t index) const {
  const auto own = own_.find(index);
  return own == own_.end() ? "" : own->second;
}

}  // namespace cp_pool
