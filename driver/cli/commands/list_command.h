#pragma once

#include "driver/cli/commands/command.h"
#include "driver/cli/select/selection_options.h"

namespace cp_pool {

struct ListOptions {
  SelectionOptions selection;
  bool json = false;
  bool count = false;
};

}  // namespace cp_pool
