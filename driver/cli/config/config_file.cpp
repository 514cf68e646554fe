#include "driver/cli/config/config_file.h"

#include <sys/stat.h>
#include <system_error>
#include <toml++/toml.h>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/did_you_mean.h"
#include "cases/error_reason.h"
#include "cases/file_reader.h"
#include "driver/core/exit_code.h"

namespace cp_pool {
namespace {

constexpr const char* kFileName = "cp-pool.toml";

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  ConfigFile read(const toml::table& root) {
    ConfigFile file;
    for (const auto& [key, node] : root) {
      if (key == "profile") {
        read_profiles(file, node);
      } else if (key == "override") {
        read_overrides(file, node, "");
      } else {
        const std::string text{key.str()};
        const std::string hint = did_you_mean(text, {"profile", "override"});
        refuse_at(place_of(key),
                  fmt::format("unknown key '{}'{}; options stand in [profile.default] or [profile.NAME]", text, hint));
      }
    }
    return file;
  }

  [[nodiscard]] std::string place(const toml::source_position& at) const {
    return fmt::format("{}:{}", name_, at.line);
  }

 private:
  [[nodiscard]] std::string place_of(const toml::key& key) const { return place(key.source().begin); }
  [[nodiscard]] std::string place_of(const toml::node& node) const { return place(node.source().begin); }

  void read_profiles(ConfigFile& file, const toml::node& node) const {
    const toml::table* profiles = node.as_table();
    if (profiles == nullptr) refuse_at(place_of(node), "profile: it has to be tables: [profile.NAME]");
    for (const auto& [name, profile] : *profiles) {
      const toml::table* entries = profile.as_table();
      if (entries == nullptr) {
        refuse_at(place_of(name), fmt::format("profile.{}: it has to be a table: [profile.NAME]", name.str()));
      }
      ConfigTable table{.name = std::string{name.str()}, .place = place_of(name)};
      for (const auto& [key, node_of_key] : *entries) {
        if (key == "override") {
          read_overrides(file, node_of_key, table.name);
        } else {
          append(table.entries, "", '-', key, node_of_key);
        }
      }
      file.profiles.push_back(std::move(table));
    }
  }

  // `profile` is the one that the overrides belong to, or empty for overrides of all profiles.
  void read_overrides(ConfigFile& file, const toml::node& node, const std::string& profile) const {
    const std::string form = profile.empty() ? "[[override]]" : fmt::format("[[profile.{}.override]]", profile);
    const toml::array* overrides = node.as_array();
    if (overrides == nullptr)
      refuse_at(place_of(node), fmt::format("override: it has to be a list of tables: {}", form));
    for (const toml::node& each : *overrides) {
      const toml::table* entries = each.as_table();
      if (entries == nullptr) refuse_at(place_of(each), fmt::format("override: it has to be a table: {}", form));
      ConfigTable table{.name = profile, .place = place_of(each)};
      for (const auto& [key, node_of_key] : *entries) append(table.entries, "", '.', key, node_of_key);
      file.overrides.push_back(std::move(table));
    }
  }

  void append(std::vector<ConfigEntry>& entries, const std::string& before, char joint, const toml::key& key,
              const toml::node& node) const {
    const std::string name = before + std::string{key.str()};
    if (const toml::table* inner = node.as_table()) {
      for (const auto& [inner_key, inner_node] : *inner) append(entries, name + joint, joint, inner_key, inner_node);
    } else {
      entries.push_back(entry(name, key, node));
    }
  }

  [[nodiscard]] ConfigEntry entry(const std::string& name, const toml::key& key, const toml::node& node) const {
    ConfigEntry out{.key = name, .kind = ConfigEntry::Kind::text, .place = place_of(key)};
    if (const toml::array* values = node.as_array()) {
      out.kind = ConfigEntry::Kind::list;
      for (const toml::node& each : *values) {
        if (each.is_array()) refuse_at(place_of(each), fmt::format("{}: a list in a list", name));
        out.values.push_back(text_of(name, each));
      }
      return out;
    }
    if (node.is_boolean()) out.kind = ConfigEntry::Kind::boolean;
    if (node.is_number()) out.kind = ConfigEntry::Kind::number;
    out.values.push_back(text_of(name, node));
    return out;
  }

  [[nodiscard]] std::string text_of(const std::string& name, const toml::node& node) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
    refuse_at(place_of(node), fmt::format("{}: a date, a time or a table is no value of an option", name));
  }

  std::string name_;
};

// A link that leads nowhere counts: reading it is an error, since its options would be missing.
bool has_file(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(folder / kFileName, ignored));
}

}  // namespace

void refuse_at(const std::string& place, const std::string& what) {
  throw CommandError(ExitCode::usage, "{}: {}", place, what);
}

// The search stops at a folder of another user, such as /tmp: its file could name any program as the worker.
std::optional<std::filesystem::path> find_config_file(const std::filesystem::path& working_directory) {
  struct stat own{};
  if (::stat(working_directory.c_str(), &own) != 0) return std::nullopt;
  for (std::filesystem::path folder = working_directory;; folder = folder.parent_path()) {
    struct stat above{};
    if (::stat(folder.c_str(), &above) != 0 || above.st_uid != own.st_uid) return std::nullopt;
    if (has_file(folder)) return folder / kFileName;
    if (folder == folder.parent_path()) return std::nullopt;
  }
}

ConfigFile read_config_file(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::absolute(file, ignored);
  try {
    return parse_config(FileReader(file.string()).read_all(), file.string(), absolute.parent_path());
  } catch (const std::system_error& e) {
    throw CommandError(ExitCode::usage, "cannot read {}: {}", file.string(), error_reason(e.code(), file.string()));
  } catch (const CaseError& e) {
    throw CommandError(ExitCode::usage, e.what());
  }
}

ConfigFile parse_config(std::string_view text, const std::string& name, const std::filesystem::path& folder) {
  Reader reader(name);
  try {
    ConfigFile file = reader.read(toml::parse(text));
    file.folder = folder;
    return file;
  } catch (const toml::parse_error& e) {
    throw CommandError(ExitCode::usage, "{}:{}: {}", reader.place(e.source().begin), e.source().begin.column,
                       e.description());
  }
}

}  // namespace cp_pool
