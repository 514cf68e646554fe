// What cp-pool.toml says, with the line of each value. Nothing here knows which keys there are.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool {

struct ConfigEntry {
  enum class Kind { text, number, boolean, list };
  std::string key;
  Kind kind = Kind::text;
  std::vector<std::string> values;  // one, but for a list
  std::string place;                // "cp-pool.toml:3"
};

struct ConfigTable {
  std::string name;  // of the profile that it is, or that the override is of; empty for an override of all
  std::string place;
  std::vector<ConfigEntry> entries;
};

struct ConfigFile {
  std::filesystem::path folder;       // relative paths start here
  std::vector<ConfigTable> profiles;  // [profile.NAME]; a key of a table within, a.b, is a-b
  // [[override]] and [[profile.NAME.override]], those of one name in their order; a key of a table within is a.b
  std::vector<ConfigTable> overrides;
};

// cp-pool.toml in the working directory, or in the nearest folder above it that belongs to the same user; nullopt:
// none.
std::optional<std::filesystem::path> find_config_file(const std::filesystem::path& working_directory);

// Throws CommandError (usage): "cp-pool.toml:3: WHAT".
[[noreturn]] void refuse_at(const std::string& place, const std::string& what);

// Throws CommandError (usage) with file and line.
ConfigFile read_config_file(const std::filesystem::path& file);
// name: of the file in places.
ConfigFile parse_config(std::string_view text, const std::string& name, const std::filesystem::path& folder);

}  // namespace cp_pool
