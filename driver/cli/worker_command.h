// The command that starts the ranks of a run, the launcher that starts it, and what its adapter would make of cases.
#pragma once

#include "driver/core/adapter_outlook.h"
#include "driver/core/run.h"
#include "driver/ranks/launcher.h"

namespace cp_pool {

// The worker as the command line names it.
struct WorkerChoice {
  std::string command = {};  // --worker, a command line; empty means cp-pool-worker beside this program
  std::string adapter = {};  // --adapter, as given; empty means none
  std::string python = {};   // --python, the adapter's interpreter; empty means default_python()
  std::string delays = {};   // --delays, SEED[:MAX_MS] of the adapter's delays; empty means none
};

struct WorkerCommand {
  std::vector<std::string> words;
  std::string implementation = {};  // as in RunStarted::implementations, cleaned
  bool shipped = false;             // cp-pool-worker beside this program, with or without options
  // For a Python adapter, which cp_pool.worker serves; empty for other workers.
  std::vector<std::string> fork_server = {};    // starts the process from which ranks are forked
  std::vector<std::string> explain_skips = {};  // reads cases and prints which the adapter would skip

  [[nodiscard]] bool adapter() const { return !fork_server.empty(); }
};

// The words and the adapter in `choice` must have been checked with the command line.
WorkerCommand worker_command(const WorkerChoice& choice);

// Makes the command that of `program`, without RankProgram::start_timeout_grows. forks: ranks may be forked.
void set_worker(const WorkerCommand& command, bool forks, RankProgram& program);

// Gives a call that no worker of the command line runs the ranks that run calls alone: those of Python's cp_pool.calls.
void set_worker_of_call(const WorkerChoice& choice, bool forks, Item& item);

// The two forms of an adapter: a Python file with a name in it, FILE.py[:NAME], or a module and a name,
// package.module:NAME.
struct AdapterPlace {
  std::string file;       // as given; empty for a module
  std::string name = {};  // the adapter's name; may be empty for a file
};
AdapterPlace adapter_place(std::string_view text);

// Returns why `text` cannot be an adapter, for the user; empty if it can. A file has to exist; a module is not looked
// for.
std::string wrong_with_adapter(const std::string& text);

// Returns the Python of the environment in which this program is installed: python3 beside the program (a build folder
// has one, python/CMakeLists.txt), or that of the environment whose site-packages hold the program, or else python3 of
// PATH.
std::string default_python();

// Returns why `text` cannot be a launcher, for the user; empty if it can.
std::string wrong_with_launcher(const std::string& text);
// `text` must have passed wrong_with_launcher.
Launcher parse_launcher(const std::string& text);

// --- Asking a Python adapter without starting ranks

// Returns what the adapter would make of each case. `case_lines` are JSON cases, as `list --json` prints them; with the
// key "pairs": true, the pairs that each rank would compute are asked for, too. If the adapter cannot be asked, prints
// its stderr and throws CommandError (infra).
std::vector<AdapterOutlook> outlooks_of(const WorkerCommand& command, const std::vector<std::string>& case_lines);

// Loads the adapter without asking about cases. Returns why it cannot be loaded, with its traceback, or an empty string
// if it can.
std::string loading_error(const WorkerCommand& command);

// The Python interpreter of an adapter.
struct Interpreter {
  std::string text;  // its path, version and packages: "/usr/bin/python3, Python 3.11.2, torch 2.9.0, cp_pool 1.0"
  std::string trouble = {};  // why it cannot be used, in lines; empty if it runs and has torch and cp_pool
};
Interpreter interpreter_of(const WorkerCommand& command);

}  // namespace cp_pool
