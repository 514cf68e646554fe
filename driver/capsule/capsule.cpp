#include "driver/capsule/capsule.h"

#include <stdexcept>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "cases/case_file_name.h"
#include "cases/error_reason.h"
#include "cases/file_reader.h"
#include "cases/whole_file.h"
#include "worker/protocol/field_json.h"

namespace cp_pool {

namespace {

constexpr const char* kCapsuleFile = "capsule.json";
constexpr int kIndent = 1;

template <HasFields Struct>
std::string json_text(const Struct& of) {
  return protocol::object_json<nlohmann::ordered_json>(of).dump(kIndent, ' ', false,
                                                                nlohmann::ordered_json::error_handler_t::replace) +
         '\n';
}

void write_whole(const std::filesystem::path& file, std::string_view text) {
  try {
    WholeFile whole(file);
    whole.write(text);
    whole.keep();
  } catch (const std::system_error& e) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", file.string(), e.code().message()));
  }
}

const std::string& name_of_dumps(const Capsule& capsule, const CaseFinished* result) {
  return result == nullptr || result->dump_name.empty() ? capsule.id : result->dump_name;
}

// Copies the dumps of the case. Every group of ranks has a file of its own.
void copy_dumps(const std::filesystem::path& from, const std::string& of, const std::filesystem::path& to) {
  const std::string name = case_file_name(of) + '.';
  const std::string of_groups = case_file_name(of) + ".group";
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string file = entry.path().filename().string();
    const bool is_dump =
        file == name + "safetensors" || (file.starts_with(of_groups) && file.ends_with(".safetensors"));
    if (!is_dump) continue;
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(entry.path(), to / entry.path().filename(),
                               std::filesystem::copy_options::overwrite_existing);
  }
}

}  // namespace

void write_capsule(const std::filesystem::path& folder, const Capsule& capsule, const CapsuleFiles& files) {
  try {
    std::filesystem::create_directories(folder);
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
    if (files.dump_dir) copy_dumps(*files.dump_dir, name_of_dumps(capsule, files.result), folder / "dump");
  } catch (const std::filesystem::filesystem_error& e) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", folder.string(), e.code().message()));
  }
  write_whole(folder / "requests.jsonl", files.requests);
  if (files.result != nullptr) {
    write_whole(folder / "result.json", json_text(*files.result));
    for (const StderrTail& tail : files.result->stderr_tails) {
      write_whole(folder / fmt::format("rank{}.stderr.txt", tail.rank), tail.text);
    }
  }
  write_whole(folder / kCapsuleFile, json_text(capsule));  // written last: if it exists, the other files do too
}

Capsule read_capsule(const std::filesystem::path& folder) {
  const std::filesystem::path file = std::filesystem::is_directory(folder) ? folder / kCapsuleFile : folder;
  try {
    const std::string text = FileReader(file.string()).read_all();
    const nlohmann::json json = protocol::parse_any_json(text);
    Capsule capsule = protocol::read_fields<Capsule>(protocol::Fields(json, file.string()));
    if (capsule.capsule != 1) {
      throw CaseError(fmt::format("{}: capsule: version {} is unknown, the only known version is 1", file.string(),
                                  capsule.capsule));
    }
    if (capsule.cases.empty()) throw CaseError(fmt::format("{}: cases: the list is empty", file.string()));
    if (capsule.worker.empty()) throw CaseError(fmt::format("{}: worker: the command is empty", file.string()));
    return capsule;
  } catch (const std::system_error& e) {
    throw CaseError(fmt::format("cannot read {}: {}", file.string(), e.code().message()));
  } catch (const nlohmann::json::exception& e) {
    throw CaseError(fmt::format("{} is not a capsule: {}", file.string(), e.what()));
  } catch (const protocol::ProtocolError& e) {
    throw CaseError(fmt::format("{} is not a capsule: {}", file.string(), e.what()));
  }
}

}  // namespace cp_pool
