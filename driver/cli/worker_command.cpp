#include "driver/cli/worker_command.h"

#include <filesystem>

#include "driver/cli/program_paths.h"
#include "driver/cli/shell_words.h"

namespace cp_pool {

WorkerCommand worker_command(const std::string& worker) {
  const std::filesystem::path shipped = default_worker();
  if (worker.empty()) return {.words = {shipped.string()}, .shipped = true};
  WorkerCommand command{.words = split_words(worker).value(), .shipped = false};
  std::string& program = command.words.front();
  if (program == shipped.filename() && std::filesystem::exists(shipped)) program = shipped.string();
  command.shipped = program == shipped.string();
  return command;
}

}  // namespace cp_pool
