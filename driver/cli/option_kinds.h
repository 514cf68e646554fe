// The kinds of options that subcommands have, with the values that each accepts and its error texts for others.
// Beside these, only the parser and the man page know CLI11.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
class Option;
}  // namespace CLI

namespace cp_pool {

// What is wrong with the value of an option, for its user; empty: nothing.
using ValueCheck = std::function<std::string(const std::string& text)>;

// A flag sets its target.
void add_flag(CLI::App& command, const std::string& name, bool& target, const std::string& help, bool value = true);
// One that only was_given tells of.
void add_flag(CLI::App& command, const std::string& name, const std::string& help);

// The text of an option in a file of `folder` that names a file, as it has to be here.
using FromFolder = std::function<std::string(const std::string& text, const std::filesystem::path& folder)>;
std::string path_from_folder(const std::string& text, const std::filesystem::path& folder);

struct TextOption {
  std::string name;
  std::string type;  // as the help shows it: FILE
  std::string help;
  ValueCheck check = nullptr;
  std::optional<std::string> default_text = std::nullopt;  // as the help shows it
  FromFolder from_folder = nullptr;                        // of values that name files
};
// take: gets each value that the check lets pass.
void add_text(CLI::App& command, const TextOption& option, const std::function<void(const std::string& text)>& take);

// The same, for an option that may stand alone: then it takes its default_text. Not beside positional values.
void add_text_or_nothing(CLI::App& command, const TextOption& option,
                         const std::function<void(const std::string& text)>& take);

// One of several words; the help shows them, and the target as the default.
void add_choice(CLI::App& command, const std::string& name, const std::string& type,
                const std::vector<std::string>& words, std::string& target, const std::string& help);

// Any number of values, each time it is given one or, if greedy, several: not where it would swallow a positional one.
void add_list(CLI::App& command, const TextOption& option, std::vector<std::string>& target, bool greedy);

// A duration of at least `minimum`.
void add_duration(CLI::App& command, const std::string& name, std::chrono::milliseconds& target,
                  std::chrono::milliseconds minimum, const std::string& help);
// A decimal number of at least `least`.
void add_count(CLI::App& command, const std::string& name, int& target, const std::string& help, int least = 0);
// A number above 0.
void add_ratio(CLI::App& command, const std::string& name, std::optional<double>& target, const std::string& help);

enum class PathUse {
  input,
  earlier_run,  // an events file, or the name of a recorded run
  output,
  folder,
  worker_folder,  // a folder that workers write: they hear of it in JSON, which is UTF-8
};
void add_path(CLI::App& command, const std::string& name, std::optional<std::filesystem::path>& target,
              const std::string& type, PathUse use, const std::string& help);

enum class Needed { yes, no };
// Values without an option's name: one, or one and more.
void add_positional(CLI::App& command, const std::string& name, std::string& target, Needed needed,
                    const std::string& help);
void add_positionals(CLI::App& command, const std::string& name, std::vector<std::string>& target,
                     const std::string& help);

// Lets the parser refuse the two options together; one that is given counts more than one that is set otherwise. Call
// it while options are added.
void exclude(CLI::App& command, const std::string& one, const std::string& other);
// The options have a value on the command line alone, in this command. Likewise.
void leave_to_command_line(CLI::App& command, const std::vector<std::string>& names);
// All that the command has so far, but these.
void leave_to_command_line_but(CLI::App& command, const std::vector<std::string>& names);

// The words of a choice; empty for any other option.
std::vector<std::string> words_of_choice(const CLI::Option& option);

// The rest are for what was read.
// On the command line; a flag that was given as false was not.
bool was_given(const CLI::App& command, const std::string& name);
// There, or by the environment or cp-pool.toml (driver/cli/config/).
bool is_set(const CLI::App& command, const std::string& name);
// By one of these two alone.
bool is_configured(const CLI::App& command, const std::string& name);
// The options that were given, with their values, as words that the parser of a command with these options reads back.
std::vector<std::string> given_words(const CLI::App& command, const std::vector<std::string>& names);
// All of them but those.
std::vector<std::string> given_words_but(const CLI::App& command, const std::vector<std::string>& names);
// Throws CommandError (usage) that points to the help of the command.
[[noreturn]] void refuse(const CLI::App& command, const std::string& message);
// Throws CommandError (usage) if both are given.
void refuse_both(const CLI::App& command, const std::string& one, const std::string& other);

}  // namespace cp_pool
