// The two passes of a training step.
#pragma once

#include <array>
#include <string_view>
#include <utility>

#include "cases/case_phases.h"
#include "cases/enum_names.h"

namespace cp_pool {

enum class Pass { forward, backward };
template <>
inline constexpr std::array<std::pair<Pass, std::string_view>, 2> kNames<Pass>{
    {{Pass::forward, case_phase::kForward}, {Pass::backward, case_phase::kBackward}}};

}  // namespace cp_pool
