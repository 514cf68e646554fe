#include "driver/cli/launcher_choice.h"

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "driver/cli/shell_words.h"

namespace cp_pool {

namespace {

constexpr std::array<std::pair<const char*, LauncherKind>, 4> kNamed{{{"local", LauncherKind::local},
                                                                      {"torchrun", LauncherKind::torchrun},
                                                                      {"mpirun", LauncherKind::mpirun},
                                                                      {"srun", LauncherKind::srun}}};

std::optional<LauncherKind> named(const std::string& text) {
  for (const auto& [name, kind] : kNamed) {
    if (text == name) return kind;
  }
  return std::nullopt;
}

}  // namespace

std::string wrong_with_launcher(const std::string& text) {
  if (named(text)) return "";
  const auto words = split_words(text);
  if (!words || words->empty()) return fmt::format("'{}' is not a command line", text);
  if (words->size() == 1) {
    return fmt::format("'{}' is none of local, torchrun, mpirun and srun, and no command line with {{worker}} in it",
                       text);
  }
  return wrong_with_template(*words);
}

Launcher parse_launcher(const std::string& text) {
  if (const auto kind = named(text)) return {*kind, {}};
  return {LauncherKind::custom, split_words(text).value()};
}

}  // namespace cp_pool
