#include "driver/cli/worker_files.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "driver/process/file_stamps.h"
#include "driver/process/filter.h"
#include "driver/process/spawn.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

namespace {

namespace fs = std::filesystem;

// Prints the files as a JSON list. sys.argv[1] is the file of an adapter or its module. Nothing is imported: a package
// is found by its name, and imports are read from the source. In a module that is half written the search ends.
constexpr const char* kModules = R"(
import importlib.util, json, modulefinder, os, sys

def with_imports(file):
    finder = modulefinder.ModuleFinder(path=[os.path.dirname(file)])
    try:
        finder.run_script(file)
    except (SyntaxError, ValueError, OSError, RecursionError):
        pass
    return [file] + [module.__file__ for module in finder.modules.values() if module.__file__]

def of_package(folders):
    for folder in folders:
        for parent, _, names in os.walk(folder):
            yield from (os.path.join(parent, name) for name in names if name.endswith(".py"))

place = sys.argv[1]
if place.endswith(".py"):
    files = with_imports(place)
else:
    spec = importlib.util.find_spec(place.partition(".")[0])
    if spec is None:
        files = []
    elif spec.submodule_search_locations is not None:
        files = list(of_package(spec.submodule_search_locations))
    else:
        files = with_imports(spec.origin) if spec.has_location else []
print(json.dumps(files))
)";

void add(std::vector<fs::path>& files, const fs::path& path) {
  fs::path file = fs::absolute(path).lexically_normal();
  if (std::ranges::find(files, file) == files.end()) files.push_back(std::move(file));
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// Looks a program up as execvp does. Returns the word itself if nothing is found, since the program may be created
// later.
fs::path found_program(const std::string& word) {
  if (word.find('/') != std::string::npos) return word;
  const char* const variable = std::getenv("PATH");
  const std::string_view folders = variable == nullptr ? "/bin:/usr/bin" : variable;
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    fs::path program = fs::path{folders.substr(begin, end - begin)} / word;  // empty: the working directory
    if (is_file(program) && ::access(program.c_str(), X_OK) == 0) return program;
    begin = end + 1;
  }
  return word;
}

std::vector<fs::path> modules_of(const std::string& python, const std::string& place) {
  std::vector<fs::path> files;
  try {
    const Filtered done = run_filter({python, "-c", kModules, place}, "");
    for (const nlohmann::json& file : protocol::parse_any_json(done.out)) add(files, file.get<std::string>());
  } catch (const SpawnError&) {  // starting the ranks will report the missing interpreter
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  } catch (const protocol::ProtocolError&) {
    return {};
  }
  std::erase_if(files, is_of_system);
  return files;
}

}  // namespace

WorkerFiles worker_files(const WorkerChoice& choice) {
  WorkerFiles out;
  const WorkerCommand command = worker_command(choice);
  if (!command.adapter()) {
    add(out.needed, found_program(command.words.front()));
    std::for_each(command.words.begin() + 1, command.words.end(), [&](const std::string& word) {
      if (is_file(word)) add(out.needed, word);
    });
    return out;
  }
  const std::string file = adapter_place(choice.adapter).file;
  if (!file.empty()) add(out.needed, file);
  const std::string place =
      file.empty() ? choice.adapter.substr(0, choice.adapter.rfind(':')) : out.needed.front().string();
  out.modules = modules_of(command.words.front(), place);
  std::erase_if(out.modules, [&](const fs::path& module) { return std::ranges::count(out.needed, module) > 0; });
  return out;
}

}  // namespace cp_pool
