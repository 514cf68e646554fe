// Fuzz target: the bytes that a worker or a driver may send. They pass the line framer in pieces, and every line is
// read as a message.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/require.h"
#include "worker/protocol/line_framer.h"
#include "worker/protocol/messages.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {
namespace {

using protocol::Line;
using protocol::LineFramer;

std::vector<Line> lines_of(std::string_view bytes, LineFramer::Stream stream, std::size_t piece) {
  LineFramer framer(stream);
  std::vector<Line> lines;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    for (Line& line : framer.feed(bytes.substr(at, piece))) lines.push_back(std::move(line));
  }
  if (auto rest = framer.rest()) lines.push_back(*std::move(rest));
  return lines;
}

bool same(const Line& a, const Line& b) {
  return a.kind == b.kind && a.text == b.text && a.cut == b.cut;
}

// A message that could be read does not change when it is encoded, read and encoded again.
template <typename Parse>
void expect_stable(std::string_view text, Parse parse) {
  std::string first;
  try {
    first = protocol::encode(parse(text));
  } catch (const protocol::ProtocolError&) {
    return;  // the one way to refuse a text
  }
  fuzz::require(protocol::encode(parse(first)) == first, "a message changes when it is sent on");
}

void expect_clean(const nlohmann::json& value) {
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    fuzz::require(protocol::clean_text(text) == text, "a text of a worker is not clean");
  }
  if (!value.is_structured()) return;
  for (const auto& item : value.items()) {
    if (value.is_object()) expect_clean(item.key());
    expect_clean(item.value());
  }
}

void expect_clean_event(std::string_view text) {
  try {
    expect_clean(nlohmann::json::parse(protocol::encode(protocol::parse_event(text))));
  } catch (const protocol::ProtocolError&) {
    return;
  }
}

void clean(std::string_view text) {
  const std::string cleaned = protocol::clean_text(text);
  fuzz::require(protocol::to_valid_utf8(cleaned) == cleaned, "cleaned text is not UTF-8");
  fuzz::require(cleaned.find('\x1b') == std::string::npos, "cleaned text holds an escape");
  fuzz::require(protocol::clean_text(cleaned) == cleaned, "clean text is cleaned once more");
  fuzz::require(protocol::cut_text(text, 100).size() <= 100, "cut text is too long");
  (void)protocol::parse_fence(text);
}

}  // namespace
}  // namespace cp_pool

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer looks for it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cp_pool;
  if (size == 0) return 0;
  // The first byte is the size, minus 1, of the pieces in which the others arrive.
  const std::string_view bytes{reinterpret_cast<const char*>(data) + 1, size - 1};
  const std::size_t piece = std::size_t{data[0]} + 1;
  for (const auto stream : {LineFramer::Stream::requests, LineFramer::Stream::responses, LineFramer::Stream::log}) {
    const std::vector<Line> lines = lines_of(bytes, stream, piece);
    const std::vector<Line> whole = lines_of(bytes, stream, bytes.size() + 1);
    fuzz::require(std::ranges::equal(lines, whole, same), "lines depend on the pieces in which they arrive");
    for (const Line& line : lines) {
      clean(line.text);
      if (stream == LineFramer::Stream::requests) expect_stable(line.text, protocol::parse_request);
      if (stream == LineFramer::Stream::responses) {
        expect_stable(line.text, protocol::parse_event);
        expect_clean_event(line.text);
      }
    }
  }
  return 0;
}
