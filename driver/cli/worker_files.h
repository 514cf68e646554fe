// Finds the files under test, which their author edits.
#pragma once

#include <filesystem>
#include <vector>

#include "driver/cli/worker_command.h"

namespace cp_pool {

// Absolute paths without duplicates.
struct WorkerFiles {
  // Files without which no rank starts: the worker's program, as execvp finds it, and those of its words that are files
  // (`python my_worker.py`); or the file of the adapter. The interpreter of an adapter does not belong to them.
  std::vector<std::filesystem::path> needed;
  // For an adapter in a file, the modules that it imports from its own folder. For one in a package, the package's .py
  // files. Files of the system are left out.
  std::vector<std::filesystem::path> modules;
};

// Asks the interpreter of an adapter where its modules are, without importing them (about 50 ms). Lists no modules if
// it cannot say.
WorkerFiles worker_files(const WorkerChoice& choice);

}  // namespace cp_pool
