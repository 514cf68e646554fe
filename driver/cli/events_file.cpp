#include "driver/cli/events_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "cases/case_error.h"
#include "driver/cli/exit_code.h"
#include "driver/reporters/events_json.h"
#include "worker/protocol/messages.h"

namespace cp_pool {

// Of every line that --events writes.
static constexpr std::string_view kLineStart = R"({"v":)";

void read_events(const std::filesystem::path& file, std::string_view what,
                 const std::function<void(const Json& event)>& take) {
  errno = 0;
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file)) {
    throw CommandError(ExitCode::bad_input, fmt::format("cannot read {} {}: {}", what, file.string(),
                                                        in ? "it is a folder" : std::strerror(errno)));
  }
  std::size_t number = 0;
  const auto refuse = [&](const std::string& why = "") {
    throw CommandError(ExitCode::bad_input, fmt::format("{} {} is no events file of cp-pool run --events: line {}{}",
                                                        what, file.string(), number, why));
  };
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.empty()) continue;
    // Half a last line is of a driver that died while it wrote, or of a disk that was full.
    if (in.eof() && !Json::accept(line)) continue;
    // Of files that were joined the half line stands before the first of the next.
    if (const std::size_t next = line.rfind(kLineStart); next != std::string::npos && next > 0 && !Json::accept(line)) {
      line.erase(0, next);
    }
    try {
      const Json event = Json::parse(line);
      if (const int version = event.value("v", kEventsVersion); version != kEventsVersion) {
        refuse(fmt::format(" is of version {}, and this cp-pool reads {}", version, kEventsVersion));
      }
      take(event);
    } catch (const Json::exception&) {
      refuse();
    } catch (const CaseError&) {
      refuse();
    } catch (const protocol::ProtocolError&) {
      refuse();
    } catch (const std::invalid_argument&) {
      refuse();
    }
  }
}

}  // namespace cp_pool
