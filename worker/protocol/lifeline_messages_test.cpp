#include "worker/protocol/lifeline_messages.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "worker/protocol/environment.h"
#include "worker/protocol/messages.h"

namespace cp_pool::lifeline {
namespace {

using nlohmann::json;
using namespace ::testing;

TEST(LifelineMessages, AreALineOfJsonEach) {
  const std::string joined = line_of(Event{Joined{"ab12", 3, Stream::errors, "node1", 77}});
  EXPECT_EQ(joined.find('\n'), joined.size() - 1);
  EXPECT_EQ(
      json::parse(joined),
      (json{
          {"event", "joined"}, {"token", "ab12"}, {"rank", 3}, {"stream", "errors"}, {"host", "node1"}, {"pid", 77}}));
  EXPECT_EQ(line_of(Event{Beat{}}), "{\"event\":\"beat\"}\n");
  EXPECT_EQ(line_of(Order{Beat{}}), "{\"order\":\"beat\"}\n");
  EXPECT_EQ(json::parse(line_of(Order{Rendezvous{"node0", {"10.0.0.1", "fe::1"}, 4711}})),
            (json{{"order", "rendezvous"}, {"host", "node0"}, {"addresses", {"10.0.0.1", "fe::1"}}, {"port", 4711}}));
  EXPECT_EQ(json::parse(line_of(Event{Ending{77}})), (json{{"event", "ending"}, {"exit_code", 77}}));
}

TEST(LifelineMessages, AreReadAsTheyWereWritten) {
  const auto joined = read_event(line_of(Event{Joined{"ab12", 3, Stream::errors, "node1", 77}}));
  ASSERT_TRUE(joined.has_value());
  const auto& read = std::get<Joined>(*joined);
  EXPECT_EQ(read.token, "ab12");
  EXPECT_EQ(read.rank, 3);
  EXPECT_EQ(read.stream, Stream::errors);
  EXPECT_EQ(read.host, "node1");
  EXPECT_EQ(read.pid, 77);
  const auto told = read_order(line_of(Order{Rendezvous{"node0", {"10.0.0.1", "fe::1"}, 4711}}));
  ASSERT_TRUE(told.has_value());
  EXPECT_THAT(std::get<Rendezvous>(*told).addresses, ElementsAre("10.0.0.1", "fe::1"));
  EXPECT_EQ(std::get<Rendezvous>(*told).port, 4711);
  for (const Order& order : {Order{Beat{}}, Order{ShowStack{}}, Order{End{}}}) {
    const auto got = read_order(line_of(order));
    ASSERT_TRUE(got.has_value());
    EXPECT_EQ(got->index(), order.index());
  }
}

TEST(LifelineMessages, OfANewerVersionAreNoError) {
  EXPECT_EQ(read_event(R"({"event": "temperature", "celsius": 40})"), std::nullopt);
  EXPECT_EQ(read_order(R"({"order": "dance"})"), std::nullopt);
}

TEST(LifelineMessages, SayWhatIsWrong) {
  EXPECT_THAT([] { (void)read_event(R"({"event": "joined", "rank": 1})"); },
              ThrowsMessage<protocol::ProtocolError>(HasSubstr("\"token\"")));
  EXPECT_THAT([] { (void)read_event(R"({"event": "joined", "token": "a", "rank": 1.5})"); },
              ThrowsMessage<protocol::ProtocolError>(HasSubstr("\"rank\"")));
  EXPECT_THAT([] { (void)read_event(R"({"event": "rendezvous", "addresses": ["a"], "port": 70000})"); },
              ThrowsMessage<protocol::ProtocolError>(HasSubstr("70000")));
  EXPECT_THAT([] { (void)read_event(R"({"event": "rendezvous", "addresses": [], "port": 7})"); },
              ThrowsMessage<protocol::ProtocolError>(HasSubstr("no address")));
  EXPECT_THROW((void)read_event("{\"event\": \"be"), json::exception);
  EXPECT_THROW((void)read_event("[1, 2]"), protocol::ProtocolError);
}

TEST(LifelineMessages, EndpointsAreNamesAddressesAndBracketedAddresses) {
  const std::string text = "node1:4711,10.0.0.1:80,[fe80::1%eth0]:65535";
  const std::vector<Endpoint> endpoints = parse_endpoints(text);
  EXPECT_THAT(endpoints,
              ElementsAre(Endpoint{"node1", 4711}, Endpoint{"10.0.0.1", 80}, Endpoint{"fe80::1%eth0", 65535}));
  EXPECT_EQ(join_endpoints(endpoints), text);
}

TEST(LifelineMessages, WhatIsNoEndpointIsNamed) {
  for (const char* bad : {"", "node1", "node1:", "node1:0", "node1:65536", "node1:4x", ":47", "::1:47", "[]:47"}) {
    SCOPED_TRACE(bad);
    EXPECT_THAT([&] { (void)parse_endpoints(std::string("good:1,") + bad); },
                ThrowsMessage<protocol::EnvironmentError>(HasSubstr("\"" + std::string(bad) + "\"")));
  }
}

}  // namespace
}  // namespace cp_pool::lifeline
