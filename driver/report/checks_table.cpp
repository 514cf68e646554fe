#include "driver/report/checks_table.h"

#include <fmt/format.h>

#include "driver/core/figures.h"
#include "driver/report/text_format.h"

namespace cp_pool {

std::string checks_table(const std::vector<Check>& checks) {
  constexpr const char* kRow = "{:<10} {:>4}  {:<5} {:>9} {:>9} {:>6} {:>9} {:>9} {:>9}  {}";
  std::string out = fmt::format(fmt::runtime(kRow), "tensor", "rank", "", "error", "bound", "ratio", "baseline",
                                "max_abs", "rms", "worst row") +
                    '\n';
  for (const Check& check : checks) {
    const auto told = [&](double figure) { return check.measured ? format_figure(figure) : "-"; };
    out += fmt::format(fmt::runtime(kRow), check.tensor, check.rank, check.ok ? "ok" : "WRONG", told(check.error),
                       told(check.bound), ratio_text(check), format_figure(check.baseline),
                       format_figure(check.max_abs), format_figure(check.rms), format_index(check.worst_index));
    if (!check.message.empty()) out += "  " + check.message;
    out += '\n';
  }
  return out;
}

}  // namespace cp_pool
