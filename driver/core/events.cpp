#include "driver/core/events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "worker/protocol/text_clean.h"

namespace cp_pool {

RunStarted started_now(RunStarted header, const std::string& implementation) {
  if (header.implementations.empty() && !implementation.empty()) header.implementations = {implementation};
  header.title = protocol::clean_text(header.title);
  header.size = protocol::clean_text(header.size);
  if (header.baseline) header.baseline = protocol::clean_text(*header.baseline);
  header.started = std::chrono::system_clock::now();
  return header;
}

std::string implementation_text(const RunStarted& header) {
  if (header.implementations.empty()) return "";
  return fmt::format(", implementation: {}", fmt::join(header.implementations, "; "));
}

Event::Event() = default;
Event::Event(const Event& other) = default;
Event::Event(Event&& other) noexcept = default;
Event& Event::operator=(const Event& other) = default;
Event& Event::operator=(Event&& other) noexcept = default;
Event::~Event() = default;

}  // namespace cp_pool
