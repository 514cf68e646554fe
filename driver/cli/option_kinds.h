// The kinds of options that subcommands have: the values that each accepts, and the error texts for others. Apart from
// these files, only the parser and the man page use CLI11.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cases/parse_number.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
class Option;
}  // namespace CLI

namespace cp_pool {

// Returns the parts between the separators; one more than there are separators.
std::vector<std::string> split(std::string_view text, char separator);

// Reads "90" (seconds), "90s", "1.5s", "1500ms", "2m" or "1h": not negative, at most 1000 h, rounded to milliseconds.
// Returns nullopt for anything else.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// Returns a text that parse_duration reads back: "90s", "1500ms".
std::string duration_text(std::chrono::milliseconds duration);

// Returns why a value is refused, for the user; empty if it is valid.
using ValueCheck = std::function<std::string(const std::string& text)>;

// Adds a flag that sets its target to `value`.
void add_flag(CLI::App& command, const std::string& name, bool& target, const std::string& help, bool value = true);
// Adds a flag without a target; was_given tells whether it was given.
void add_flag(CLI::App& command, const std::string& name, const std::string& help);

// Converts the value of an option that names a file: it comes from a configuration file in `folder`, and is returned
// relative to the working directory.
using FromFolder = std::function<std::string(const std::string& text, const std::filesystem::path& folder)>;
std::string path_from_folder(const std::string& text, const std::filesystem::path& folder);

struct TextOption {
  ValueCheck check = nullptr;
  std::optional<std::string> default_text = std::nullopt;  // as the help shows it
  FromFolder from_folder = nullptr;                        // for values that name files
};
// Adds an option that takes a text. `type` is shown in the help, such as FILE. `take` gets each value that passes the
// check.
using TakeText = std::function<void(const std::string& text)>;
void add_text(CLI::App& command, const std::string& name, const std::string& type, const TakeText& take,
              const std::string& help, const TextOption& option = {});
void add_text(CLI::App& command, const std::string& name, const std::string& type, std::string& target,
              const std::string& help, const TextOption& option = {});

// The same for an option whose value may be left out: then it takes its default_text. It must not be followed by
// positional arguments.
void add_text_or_nothing(CLI::App& command, const std::string& name, const std::string& type, const TakeText& take,
                         const std::string& help, const TextOption& option);

// Adds an option that takes one of several words. The help shows them, with the value of the target as the default.
void add_choice(CLI::App& command, const std::string& name, const std::string& type,
                const std::vector<std::string>& words, std::string& target, const std::string& help);

// Adds an option that collects values. It can be given several times and, if greedy, takes several values each time; a
// greedy one would swallow positional arguments.
void add_list(CLI::App& command, const std::string& name, const std::string& type, std::vector<std::string>& target,
              const std::string& help, bool greedy, const TextOption& option = {});

// Add an option that takes a duration, a whole number, or a number above 0.
void add_duration(CLI::App& command, const std::string& name, std::chrono::milliseconds& target,
                  std::chrono::milliseconds minimum, const std::string& help);
void add_count(CLI::App& command, const std::string& name, int& target, const std::string& help, int least = 0);
void add_ratio(CLI::App& command, const std::string& name, std::optional<double>& target, const std::string& help);

enum class PathUse {
  input,
  earlier_run,  // an events file, or the name of a recorded run
  output,
  folder,
  worker_folder,  // a folder that workers write to; its path is sent to them in JSON, so it has to be UTF-8
};
void add_path(CLI::App& command, const std::string& name, std::optional<std::filesystem::path>& target,
              const std::string& type, PathUse use, const std::string& help);

enum class Needed { yes, no };
// Add positional arguments: one value, or one and more.
void add_positional(CLI::App& command, const std::string& name, std::string& target, Needed needed,
                    const std::string& help);
void add_positionals(CLI::App& command, const std::string& name, std::vector<std::string>& target,
                     const std::string& help);

// Lets the parser refuse the two options together. An option on the command line takes precedence over one from the
// configuration. To be called while options are added.
void exclude(CLI::App& command, const std::string& one, const std::string& other);
// In this command only the command line sets the options. To be called while options are added.
void bar_from_configuration(CLI::App& command, const std::vector<std::string>& names);
// The same for all options that the command has so far, except this one.
void bar_others_from_configuration(CLI::App& command, const std::string& name);

// Returns the words of a choice; empty for any other option.
std::vector<std::string> words_of_choice(const CLI::Option& option);

// The functions below are for command lines that have been read.

// True if the option is on the command line. A flag that was given as false does not count.
bool was_given(const CLI::App& command, const std::string& name);
// True if the option was given, or set by the environment or cp-pool.toml (driver/cli/config/).
bool is_set(const CLI::App& command, const std::string& name);
// True if the environment or cp-pool.toml set the option.
bool is_configured(const CLI::App& command, const std::string& name);
// Returns the options that were given, with their values, as words that the parser of a command with these options
// reads back: those of `names`, or all but these.
enum class Which { named, others };
std::vector<std::string> given_words(const CLI::App& command, Which which, const std::vector<std::string>& names);
// Throws CommandError (usage) with the message and a pointer to the help of the command, or of cp-pool itself.
[[noreturn]] void refuse(const CLI::App& command, const std::string& message);
// Throws CommandError (usage) if both are given.
void refuse_both(const CLI::App& command, const std::string& one, const std::string& other);

// Who sets an option that is not on the command line. The first that does takes precedence.
enum class SettingSource {
  variable,         // the environment
  profile,          // the profile of cp-pool.toml that was asked for
  default_profile,  // its profile `default`
  built_in,         // a profile that cp-pool has without a file
};

// A value that an option has although it is not on the command line, and who set it.
struct OptionSetting {
  std::vector<std::string> values;
  std::string place;  // for people: "cp-pool.toml:3", or the name of a variable
  SettingSource source = SettingSource::variable;
};

}  // namespace cp_pool
