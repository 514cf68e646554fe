// Steps timed by CUDA events on the current stream.
#pragma once

#include <memory>

#include "cp_core/perf/step_clock.h"

namespace cp_pool::cuda {

std::unique_ptr<StepClock> make_step_clock();

}  // namespace cp_pool::cuda
