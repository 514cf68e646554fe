#include "cases/case.h"

#include "cases/case_names.h"

namespace cp_pool {

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
std::string_view to_string(SliceType value) {
  return name_of(value);
}
std::string_view to_string(Fp8Scaling value) {
  return name_of(value);
}
std::string_view to_string(Fp8Output value) {
  return name_of(value);
}

}  // namespace cp_pool
