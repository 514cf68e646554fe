// The attention case of a payload, for tests that read or change its fields.
#pragma once

#include "cases/case.h"
#include "driver/core/payload.h"

namespace cp_pool::test {

// Returns the attention case of the payload.
inline const Case& attention(const Payload& payload) {
  return *payload->attention();
}
// Returns the attention case of the payload, to be changed: from then on no other payload shares it.
inline Case& attention(Payload& payload) {
  payload = Payload(*payload->attention());
  return const_cast<Case&>(*payload->attention());  // NOLINT(cppcoreguidelines-pro-type-const-cast): no const object
}

}  // namespace cp_pool::test
