// Reads the command line of cp-pool and says which subcommand it asks for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/completion/candidates.h"

namespace cp_pool {

// The text of a command that only prints, such as --help, --version or --man.
struct PrintText {
  std::string text;
};
class PrintCommand : public CommandWith<PrintText> {
 public:
  int run(const std::string& program) override;
};

// Returns the subcommand that is asked for, with its options read and checked. Throws CommandError (usage).
std::unique_ptr<Command> parse_command_line(int argc, const char* const* argv);

// Returns the completions of the last word. `words` are those after `cp-pool`.
Candidates command_candidates(const std::vector<std::string>& words);

// Returns what --help of the subcommand `name` prints, or of cp-pool itself if `name` is empty. Throws CommandError
// (usage).
std::string command_help(const std::string& name);

}  // namespace cp_pool
