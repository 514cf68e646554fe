// Shrinks a failing case to the smallest one that still fails.
#pragma once

#include <functional>

#include "cases/case.h"

namespace cp_pool::property {

// Drops features and reduces sizes, one at a time, as long as the case stays valid and `fails`. What is left fails, and
// no single further step does. `failing` must fail; `fails` is asked some hundred times.
Case shrink(Case failing, const std::function<bool(const Case&)>& fails);

}  // namespace cp_pool::property
