// What the ranks of a run are started with.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

// What the command line says of it.
struct WorkerChoice {
  std::string command = {};  // --worker: a command line; empty = the cp-pool-worker beside this program
  std::string adapter = {};  // --adapter: as given; empty = none
  std::string python = {};   // --python: the interpreter of the adapter; empty = default_python()
};

struct WorkerCommand {
  std::vector<std::string> words;
  bool shipped = false;  // cp-pool-worker beside this program, with or without options
  // Of a Python adapter, which cp_pool.worker serves; else empty.
  std::vector<std::string> fork_server = {};    // starts the process that ranks are forked from
  std::vector<std::string> explain_skips = {};  // reads cases and says which the adapter would skip

  [[nodiscard]] bool adapter() const { return !fork_server.empty(); }
};

// worker: its words were checked with the command line, and so was the adapter.
WorkerCommand worker_command(const WorkerChoice& choice);

// A Python file with the name of an adapter in it, FILE.py[:NAME], or a module and a name, package.module:NAME.
struct AdapterPlace {
  std::string file;  // as given; empty for a module
  std::string name;  // of the adapter; may be empty for a file
};
AdapterPlace adapter_place(std::string_view text);

// Why this cannot be the adapter, for its user; empty: it can. A file has to be there, a module is not looked for.
std::string wrong_with_adapter(const std::string& text);

// The interpreter of the environment that this program is installed in: the python3 beside it (a build folder has one,
// python/CMakeLists.txt), or that of the environment whose site-packages hold the program; else python3 of PATH.
std::string default_python();

}  // namespace cp_pool
