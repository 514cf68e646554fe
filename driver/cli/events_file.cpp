#include "driver/cli/events_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "driver/cli/exit_code.h"

namespace cp_pool {

void read_events(const std::filesystem::path& file, std::string_view what,
                 const std::function<void(const Json& event)>& take) {
  errno = 0;
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) {
    throw CommandError(ExitCode::bad_input, fmt::format("cannot read {} {}: {}", what, file.string(),
                                                        in ? "it is a folder" : std::strerror(errno)));
  }
  std::size_t number = 0;
  const auto refuse = [&] {
    throw CommandError(ExitCode::bad_input, fmt::format("{} {} is no events file of cp-pool run --events: line {}",
                                                        what, file.string(), number));
  };
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty()) continue;
    // Half a last line is of a driver that died while it wrote, or of a disk that was full.
    if (in.eof() && !Json::accept(line)) continue;
    try {
      take(Json::parse(line));
    } catch (const Json::exception&) {
      refuse();
    } catch (const CaseError&) {
      refuse();
    }
  }
}

}  // namespace cp_pool
