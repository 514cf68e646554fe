// Splits bytes from a pipe into complete lines. It works incrementally: it never waits, and holds at most one line.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cp_pool::protocol {

inline constexpr std::size_t kMaxChatterBytes = std::size_t{64} << 10U;

struct Line {
  // An over-long line is reported as soon as the limit is passed; the rest of the line is dropped.
  enum class Kind {
    message,    // a request, or the text after kResponsePrefix: one JSON object if the peer obeys the protocol
    chatter,    // any other line; text is its first kMaxChatterBytes bytes
    over_long,  // a message line longer than kMaxLineBytes; text is its first kMaxChatterBytes bytes
  };
  Kind kind = Kind::chatter;
  std::string text;        // without prefix and newline; arbitrary bytes
  bool cut = false;        // chatter only: the line was longer than text
  std::size_t number = 0;  // number of the line in the input, from 1, counting empty lines
};

class LineFramer {
 public:
  enum class Stream {
    requests,   // every line is a message
    responses,  // a line that starts with kResponsePrefix is a message, any other chatter
    log,        // every line is chatter (stderr)
  };
  explicit LineFramer(Stream stream) : stream_(stream) {}

  // Returns the lines that these bytes complete. Empty lines are skipped.
  [[nodiscard]] std::vector<Line> feed(std::string_view bytes);
  // Called at end of file: returns the last line if it has no newline, always as chatter; nullopt if there is none.
  [[nodiscard]] std::optional<Line> rest();

  // The number, and the bytes so far, of the line that has not ended yet.
  [[nodiscard]] std::size_t line_number() const { return line_number_; }
  [[nodiscard]] std::size_t line_bytes() const { return line_bytes_; }

 private:
  [[nodiscard]] bool may_be_message() const;
  [[nodiscard]] Line take(Line::Kind kind);

  Stream stream_;
  std::string line_;  // beginning of the current line
  std::size_t line_number_ = 1;
  std::size_t line_bytes_ = 0;
  bool skipping_ = false;  // the current line has been reported; the rest of it is dropped
};

// Returns the seq of a fence line of stderr ("[CP_POOL_FENCE] 12"); nullopt for any other line.
std::optional<long long> parse_fence(std::string_view line);
// Returns the fence as a rank writes it to stderr, in one write.
std::string format_fence(long long seq);

}  // namespace cp_pool::protocol
