// Reads cp-pool.toml and keeps the line of each value. Does not know which keys are valid.
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
  std::vector<std::string> values = {};  // a single one, except in a list
  std::string place;                     // "cp-pool.toml:3"
};

struct ConfigTable {
  std::string name;  // the profile's name; of an override, that of its profile, or empty if it is for all
  std::string place;
  std::vector<ConfigEntry> entries = {};
};

struct ConfigFile {
  std::filesystem::path folder;       // relative paths start here
  std::vector<ConfigTable> profiles;  // [profile.NAME]; the key b of an inner table a is named a-b
  // [[override]] and [[profile.NAME.override]]. Those of one name keep their order. The key b of an inner table a is
  // named a.b.
  std::vector<ConfigTable> overrides;
};

// Returns the cp-pool.toml of the working directory, or of the nearest folder above it that belongs to the same user;
// nullopt if there is none.
std::optional<std::filesystem::path> find_config_file(const std::filesystem::path& working_directory);

// Throws CommandError (usage): "cp-pool.toml:3: WHAT".
[[noreturn]] void refuse_at(const std::string& place, const std::string& what);

// Reads a configuration file. Throws CommandError (usage) with file and line.
ConfigFile read_config_file(const std::filesystem::path& file);
// Parses the text of a configuration file. `name` is the file's name in places; `folder` becomes ConfigFile::folder.
ConfigFile parse_config(std::string_view text, const std::string& name, const std::filesystem::path& folder);

}  // namespace cp_pool
