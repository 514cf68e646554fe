// What a rank and the driver say to each other over a lifeline (docs/cluster.md), a JSON object a line. A rank makes
// two TCP connections, begins each with a Hello, and is answered by a Beat. What follows on the first is the rank's
// stderr, byte by byte: the rank's fd 2 is this connection, so that its last words arrive however it ends. Over the
// second the two exchange these messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "cases/enum_names.h"
#include "cases/fields.h"

namespace cp_pool::lifeline {

// HOST:PORT,.. of the driver, in the order in which a rank tries them; an IPv6 address stands in brackets.
inline constexpr const char* kEnvAddresses = "CP_POOL_LIFELINE";
inline constexpr const char* kEnvToken = "CP_POOL_LIFELINE_TOKEN";  // 32 hexadecimal digits

inline constexpr std::size_t kMaxLineBytes = 8192;
inline constexpr int kExitWithoutDriver = 75;

// --- A rank to the driver: "event" -----------------------------------------------------------------------------------
enum class Stream { messages, errors };  // errors: the rank's stderr
}  // namespace cp_pool::lifeline

template <>
inline constexpr std::array<std::pair<cp_pool::lifeline::Stream, std::string_view>, 2>
    cp_pool::kNames<cp_pool::lifeline::Stream>{
        {{cp_pool::lifeline::Stream::messages, "messages"}, {cp_pool::lifeline::Stream::errors, "errors"}}};

namespace cp_pool::lifeline {

struct Hello {
  std::string token;
  int rank = 0;
  Stream stream = Stream::messages;
  std::string host;
  int pid = 0;
  std::int64_t start_time = 0;  // of the process, in ticks since the host's boot: field 22 of /proc/PID/stat

  static constexpr const char* kName = "hello";
  static constexpr auto fields() {
    return std::tuple{field("token", &Hello::token, Presence::required),
                      field("rank", &Hello::rank, Presence::required),
                      field("stream", &Hello::stream),
                      field("host", &Hello::host),
                      field("pid", &Hello::pid),
                      field("start_time", &Hello::start_time)};
  }
};
// Once a second in each direction.
struct Beat {
  static constexpr const char* kName = "beat";
  static constexpr auto fields() { return std::tuple{}; }
};
// Rank 0 to the driver, and the driver to all others: where rank 0 serves the control plane.
struct Rendezvous {
  std::string host;                    // rank 0's, for messages
  std::vector<std::string> addresses;  // of it, in the order in which ranks try them
  int port = 0;

  static constexpr const char* kName = "rendezvous";
  static constexpr auto fields() {
    return std::tuple{field("host", &Rendezvous::host), field("addresses", &Rendezvous::addresses, Presence::required),
                      field("port", &Rendezvous::port, Presence::required)};
  }
};
// The rank's last message, before it ends by itself.
struct Ending {
  int exit_code = 0;

  static constexpr const char* kName = "ending";
  static constexpr auto fields() { return std::tuple{field("exit_code", &Ending::exit_code, Presence::required)}; }
};
using Event = std::variant<Hello, Beat, Rendezvous, Ending>;

// --- The driver to a rank: "order" -----------------------------------------------------------------------------------
// A rank that hears nothing for 5 s ends itself, unless the driver has
// announced that it pauses.
struct Pause {
  static constexpr const char* kName = "pause";
  static constexpr auto fields() { return std::tuple{}; }
};
struct Resume {
  static constexpr const char* kName = "resume";
  static constexpr auto fields() { return std::tuple{}; }
};
struct ShowStack {  // on stderr
  static constexpr const char* kName = "show_stack";
  static constexpr auto fields() { return std::tuple{}; }
};
struct End {  // at once
  static constexpr const char* kName = "end";
  static constexpr auto fields() { return std::tuple{}; }
};
using Order = std::variant<Beat, Rendezvous, Pause, Resume, ShowStack, End>;

void expect_valid(const Rendezvous& rendezvous);  // throws protocol::ProtocolError

// The JSON of a message and its newline.
std::string line_of(const Event& event);
std::string line_of(const Order& order);

// line: without its newline. nullopt: of a newer version. Throw protocol::ProtocolError for what is no message, and
// nlohmann::json::exception for what is no JSON. The driver's texts are clean (text_clean.h).
std::optional<Event> read_event(std::string_view line);
std::optional<Order> read_order(std::string_view line);

// --- The variables ---------------------------------------------------------------------------------------------------
struct Endpoint {
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};
std::string to_string(const Endpoint& endpoint);  // HOST:PORT, an IPv6 address in brackets
std::string join_endpoints(const std::vector<Endpoint>& endpoints);
// Throws protocol::EnvironmentError, which names the entry.
std::vector<Endpoint> parse_endpoints(std::string_view text);

}  // namespace cp_pool::lifeline
