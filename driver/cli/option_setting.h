// A value that an option has without being on the command line.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cases/enum_names.h"

namespace cp_pool {

enum class SettingSource {
  variable,  // the environment
  file,      // a cp-pool.toml
  built_in,  // a profile that cp-pool has without a file
};
template <>
inline constexpr std::array<std::pair<SettingSource, std::string_view>, 3> kNames<SettingSource>{
    {{SettingSource::variable, "variable"}, {SettingSource::file, "file"}, {SettingSource::built_in, "built-in"}}};

// A value that an option has although it is not on the command line, and who set it.
struct OptionSetting {
  std::vector<std::string> values;
  std::string place;  // for people: "cp-pool.toml:3", or the name of a variable
  SettingSource source = SettingSource::file;
};

}  // namespace cp_pool
