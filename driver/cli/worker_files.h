// The files that make up what is under test, and which its author edits.
#pragma once

#include <filesystem>
#include <vector>

#include "driver/cli/worker_command.h"

namespace cp_pool {

// Absolute paths, each once.
struct WorkerFiles {
  // Without which no rank starts: the worker's program, as execvp finds it, and those of its words that are files
  // (`python my_worker.py`); or the file of the adapter. The interpreter of an adapter is none of them.
  std::vector<std::filesystem::path> needed;
  // Of an adapter that is a file: what it imports from its own folder. Of one in a package: the .py files of the
  // package. Without those of the system.
  std::vector<std::filesystem::path> modules;
};

// Asks the interpreter of an adapter where its modules are, which imports none of them (some 50 ms). Where it cannot
// say, there are none.
WorkerFiles worker_files(const WorkerChoice& choice);

}  // namespace cp_pool
