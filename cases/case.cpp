#include "cases/case.h"

#include "cases/case_names.h"

namespace cp_pool {
namespace {

template <typename Enum>
std::string_view name_of(Enum value) {
  for (const auto& [known, name] : kNames<Enum>) {
    if (known == value) return name;
  }
  return "invalid";
}

}  // namespace

std::string_view to_string(Backend value) {
  return name_of(value);
}
std::string_view to_string(CommType value) {
  return name_of(value);
}
std::string_view to_string(Layout value) {
  return name_of(value);
}
std::string_view to_string(DType value) {
  return name_of(value);
}
std::string_view to_string(SoftmaxType value) {
  return name_of(value);
}
std::string_view to_string(BiasShape value) {
  return name_of(value);
}

}  // namespace cp_pool
