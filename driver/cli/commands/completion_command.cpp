// `cp-pool completion`: scripts that complete command lines of cp-pool in a shell. They call `cp-pool completion words
// ..`.
#include <algorithm>
#include <array>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/cli/commands/command.h"

namespace cp_pool {
namespace {

constexpr std::string_view kBash = R"(# Completion of cp-pool for bash: cp-pool completion bash
_cp_pool() {
  local line=${COMP_LINE:0:COMP_POINT} words current kept word help
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=('')
  current=${words[-1]}
  # bash replaces only what follows the last = or : of a word.
  kept=${current%"${current##*[=:]}"}
  COMPREPLY=()
  while IFS=$'\t' read -r word help; do
    if [[ $word == '<files>' ]]; then
      compopt -o filenames 2>/dev/null
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${current#"$kept"}")
    else
      COMPREPLY+=("${word#"$kept"}")
    fi
  done < <("${words[0]}" completion words "${words[@]:1}" 2>/dev/null)
  if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _cp_pool cp-pool
)";

constexpr std::string_view kZsh = R"(#compdef cp-pool
# Completion of cp-pool for zsh: cp-pool completion zsh
_cp_pool() {
  local line word files=
  local -a described open
  for line in "${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    word=${line%%$'\t'*}
    if [[ $word == '<files>' ]]; then
      files=1
    elif [[ $word == *= ]]; then
      open+=("$word")
    elif [[ -n $word ]]; then
      described+=("${word//:/\\:}${${line#$word}/$'\t'/:}")
    fi
  done
  (( $#described )) && _describe 'cp-pool' described
  (( $#open )) && compadd -S '' -- "${open[@]}"
  [[ -n $files ]] && _files
}
# In a folder of fpath it is called at once; where it is sourced it registers itself.
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
  _cp_pool "$@"
else
  compdef _cp_pool cp-pool
fi
)";

constexpr std::string_view kFish = R"(# Completion of cp-pool for fish: cp-pool completion fish
function __cp_pool_words
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] completion words $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = '<files>'
            __fish_complete_path "$current"
        else
            echo -- $line
        end
    end
end
complete -c cp-pool -f -a '(__cp_pool_words)'
)";

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kScripts{
    {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}};

constexpr const char* kCompletionFooter =
    "Examples:\n"
    "  cp-pool completion bash      for ~/.local/share/bash-completion/completions/cp-pool\n"
    "  cp-pool completion zsh       for _cp-pool in a folder that is in fpath before compinit\n"
    "  cp-pool completion fish      for ~/.config/fish/completions/cp-pool.fish\n";

class CompletionCommand : public PrintCommand {
 public:
  explicit CompletionCommand(CLI::App& command) {
    add_positional(command, "SHELL", shell_, Needed::yes, "bash, zsh or fish");
  }
  void finish(const CLI::App& command) override {
    const auto* const script = std::ranges::find(kScripts, shell_, [](const auto& each) { return each.first; });
    if (script == kScripts.end()) {
      refuse(command, fmt::format("'{}' is none of {}", shell_, fmt::join(std::views::keys(kScripts), ", ")));
    }
    options.text = script->second;
  }

 private:
  std::string shell_;
};

}  // namespace

Subcommand completion_subcommand() {
  return subcommand<CompletionCommand>("completion", "Print a script that completes command lines in a shell",
                                       kCompletionFooter);
}

}  // namespace cp_pool
