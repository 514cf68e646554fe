#include "cases/case_report.h"

namespace cp_pool {

StepMs summarise(std::vector<double> step_ms) {
  std::ranges::sort(step_ms);
  const std::size_t middle = step_ms.size() / 2;
  const double median = step_ms.size() % 2 == 1 ? step_ms[middle] : (step_ms[middle - 1] + step_ms[middle]) / 2;
  return {.median = median, .min = step_ms.front(), .max = step_ms.back()};
}

}  // namespace cp_pool
