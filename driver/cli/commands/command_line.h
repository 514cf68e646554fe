// The command line of cp-pool: its subcommands, and which of them is asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/cli/commands/command.h"
#include "driver/cli/completion/candidates.h"

namespace cp_pool {

// Text to be printed, and nothing else to be done: --help, --version, --man.
struct PrintText {
  std::string text;
};
class PrintCommand : public CommandWith<PrintText> {
 public:
  int run(const std::string& program) override;
};

// The command that is asked for, read and checked but not yet carried out. Throws CommandError (usage).
std::unique_ptr<Command> parse_command_line(int argc, const char* const* argv);

// What may stand in place of the last of the words behind cp-pool.
Candidates command_candidates(const std::vector<std::string>& words);

// What --help of a subcommand prints; of cp-pool itself if the name is empty. Throws CommandError (usage).
std::string command_help(const std::string& name);

}  // namespace cp_pool
