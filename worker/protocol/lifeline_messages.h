// The messages between a rank and the driver over a lifeline (docs/cluster.md), one JSON object per line. A rank makes
// two TCP connections. It begins each with a Joined, which the driver answers with a Beat. The first connection then
// carries the rank's stderr: it is the rank's file descriptor 2, so that the rank's last output arrives however it
// ends. The second connection carries these messages in both directions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cases/enum_names.h"
#include "cases/fields.h"

namespace cp_pool::lifeline {

// The driver's addresses, HOST:PORT,.., in the order in which a rank tries them. An IPv6 address is in brackets.
inline constexpr const char* kEnvAddresses = "CP_POOL_LIFELINE";
inline constexpr const char* kEnvToken = "CP_POOL_LIFELINE_TOKEN";  // 32 hexadecimal digits

inline constexpr std::size_t kMaxLineBytes = 8192;

// --- A rank to the driver: "event" -----------------------------------------------------------------------------------
enum class Stream { messages, errors };  // errors: the rank's stderr
}  // namespace cp_pool::lifeline

template <>
inline constexpr auto cp_pool::kNames<cp_pool::lifeline::Stream> =
    cp_pool::kSpelledNames<cp_pool::lifeline::Stream::errors>;

namespace cp_pool::lifeline {

struct Joined {
  std::string token;
  int rank = 0;
  Stream stream = Stream::messages;
  std::string host;
  int pid = 0;

  static constexpr const char* kName = "joined";
  static constexpr auto fields() {
    return FieldList{required<&Joined::token, &Joined::rank>(),
                     optional<&Joined::stream, &Joined::host, &Joined::pid>()};
  }
};
// Sent once a second in each direction.
struct Beat {
  static constexpr const char* kName = "beat";
  static constexpr auto fields() { return FieldList{}; }
};
// Where rank 0 serves the control plane. Rank 0 sends it to the driver, and the driver to all other ranks.
struct Rendezvous {
  std::string host;                    // name of rank 0's host, for error texts
  std::vector<std::string> addresses;  // addresses of that host, in the order in which ranks try them
  int port = 0;

  static constexpr const char* kName = "rendezvous";
  static constexpr auto fields() {
    return FieldList{optional<&Rendezvous::host>(), required<&Rendezvous::addresses, &Rendezvous::port>()};
  }
};
// The last message of a rank that ends by itself.
struct Ending {
  int exit_code = 0;

  static constexpr const char* kName = "ending";
  static constexpr auto fields() { return FieldList{required<&Ending::exit_code>()}; }
};
using Event = std::variant<Joined, Beat, Rendezvous, Ending>;

// --- The driver to a rank: "order" -----------------------------------------------------------------------------------

struct ShowStack {  // the rank writes its stack to stderr
  static constexpr const char* kName = "show_stack";
  static constexpr auto fields() { return FieldList{}; }
};
struct End {  // the rank ends at once
  static constexpr const char* kName = "end";
  static constexpr auto fields() { return FieldList{}; }
};
using Order = std::variant<Beat, Rendezvous, ShowStack, End>;

void expect_valid(const Rendezvous& rendezvous);  // throws protocol::ProtocolError

// Return the JSON of a message and a newline.
std::string line_of(const Event& event);
std::string line_of(const Order& order);

// Parse a line without its newline. Return nullopt for a message of a newer version. Throw protocol::ProtocolError for
// JSON that is no message, and nlohmann::json::exception for text that is not JSON. read_event cleans the rank's texts
// (text_clean.h).
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
