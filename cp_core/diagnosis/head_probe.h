// Finds out which key-value head each query head read, and which query heads contribute to dv of each key-value head. V
// and dout hold codes of heads, the same in all rows.
#pragma once

#include <string>
#include <vector>

#include "cp_core/diagnosis/prober.h"

namespace cp_pool::diagnosis {

struct HeadMapping {
  bool asked = false;  // false: there was no time, or results were missing
  // A query head read a wrong head or several, or dv comes from other heads than those that read it.
  bool wrong = false;
  std::vector<std::string> notes;  // sentences
};

// Collective; the same on every rank. backward: asks for dv too.
HeadMapping ask_heads(Prober& prober, const AskedCase& asked, bool backward);

}  // namespace cp_pool::diagnosis
