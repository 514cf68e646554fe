#include "driver/cli/gpu_list.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "driver/cli/device.h"
#include "driver/core/exit_code.h"
#include "worker/protocol/host_resources.h"

namespace cp_pool {

namespace {

constexpr int kMostGpus = 1024;  // no machine has more

std::optional<int> gpu_number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && value >= 0 && value < kMostGpus ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<std::vector<int>> parse_gpu_list(std::string_view text) {
  std::vector<int> out;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const std::size_t dash = entry.find('-');
    const auto first = gpu_number(entry.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : gpu_number(entry.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (int gpu = *first; gpu <= *last; ++gpu) {
      if (std::ranges::count(out, gpu) > 0) return std::nullopt;
      out.push_back(gpu);
    }
  }
  return out;
}

std::string wrong_with_gpus(const std::string& text) {
  return parse_gpu_list(text) ? "" : fmt::format("'{}' is no list of GPUs, each once; write 0-3,6", text);
}

std::vector<std::string> visible_gpu_names(const std::filesystem::path& dev, const char* visible) {
  const int count = count_gpus(dev, visible);
  std::vector<std::string> out;
  if (visible != nullptr) out = protocol::visible_gpus(visible);
  for (int gpu = 0; visible == nullptr && gpu < count; ++gpu) out.push_back(std::to_string(gpu));
  out.resize(static_cast<std::size_t>(count));
  return out;
}

std::vector<std::string> chosen_gpus(const std::vector<int>& list, const std::vector<std::string>& shown) {
  std::vector<std::string> out;
  for (const int gpu : list) {
    if (!shown.empty() && gpu >= static_cast<int>(shown.size())) {
      throw CommandError(ExitCode::usage,
                         fmt::format("--gpus: there is no GPU {}; {} visible, numbered from 0", gpu,
                                     shown.size() == 1 ? "1 is" : fmt::format("{} are", shown.size())));
    }
    out.push_back(shown.empty() ? std::to_string(gpu) : shown[static_cast<std::size_t>(gpu)]);
  }
  return out;
}

}  // namespace cp_pool
