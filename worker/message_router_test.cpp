#include "worker/message_router.h"

#include <algorithm>
#include <arpa/inet.h>
#include <condition_variable>
#include <cstdlib>
#include <list>
#include <mutex>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "worker/rank_messages.h"
#include "worker/tcp.h"

namespace cp_pool {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using namespace ::testing;

const std::string kToken = "00112233445566778899aabbccddeeff";

Bytes bytes_of(std::string_view text) {
  return {text.begin(), text.end()};
}

// Any process that connects to the router.
class Peer {
 public:
  explicit Peer(const MessageRouter& router) {
    std::string why;
    fd_ = connect_within({"127.0.0.1", static_cast<std::uint16_t>(router.port())}, seconds(20), why);
    EXPECT_TRUE(fd_) << why;
  }

  void say(const Bytes& bytes) const { EXPECT_TRUE(send_all(fd_.get(), std::as_bytes(std::span{bytes}))); }
  // Waits until the router closes the connection. Returns whether it does so, without having sent anything.
  [[nodiscard]] bool is_closed() const {
    constexpr int kLimitMs = 20'000;
    pollfd end{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    std::uint8_t byte = 0;
    return poll(&end, 1, kLimitMs) == 1 && recv(fd_.get(), &byte, 1, 0) <= 0;
  }
  // Returns the next message; nullopt at the end of the connection.
  std::optional<std::string> next() {
    for (;;) {
      if (const auto message = reader_.next()) return std::string(message->begin(), message->end());
      std::uint8_t byte = 0;
      if (recv(fd_.get(), &byte, 1, 0) <= 0) return std::nullopt;
      reader_.feed({&byte, 1});
    }
  }

 private:
  UniqueFd fd_;
  MessageReader reader_;
};

// A router that closes a silent connection soon. It has to be longer than a rank of this process needs for its token.
constexpr milliseconds kPatience{1000};
constexpr Box kBoxOfRank1{Box::Of::compute, 1};

class Strangers : public testing::Test {
 protected:
  Strangers() {
    testing::internal::CaptureStderr();
    router.on_rank0([this](const Bytes& message) {
      const std::lock_guard lock(mutex_);
      heard_.emplace_back(message.begin(), message.end());
      said_.notify_all();
    });
  }
  ~Strangers() override {
    router.on_rank0(nullptr);
    if (captures_) testing::internal::GetCapturedStderr();
  }

  // Expects that the router has taken nothing from the stranger, and still serves rank 1.
  void expect_untouched() {
    Peer rank(router);
    rank.say(greeting_of(kBoxOfRank1, kToken));
    router.push(kBoxOfRank1, bytes_of("an order of rank 0"));
    EXPECT_EQ(rank.next(), "an order of rank 0");
    rank.say(frame_of(bytes_of("a report of rank 1")));
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(said_.wait_for(lock, seconds(60), [this] { return !heard_.empty(); }));
    EXPECT_THAT(heard_, ElementsAre("a report of rank 1"));
  }
  // Expects one line on stderr, which names the stranger and the reason.
  void expect_named(const std::string& why) {
    captures_ = false;
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_THAT(text, AllOf(HasSubstr("from 127.0.0.1"), HasSubstr(why)));
    EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
  }

  MessageRouter router{listen_at("127.0.0.1", 0, true), kToken, kPatience};

 private:
  std::mutex mutex_;
  std::condition_variable said_;
  std::vector<std::string> heard_;
  bool captures_ = true;
};

TEST_F(Strangers, CannotReportToRank0) {
  const Peer stranger(router);
  stranger.say(frame_of(encode(RankMessage{CaseDone{}})));
  EXPECT_TRUE(stranger.is_closed());
  expect_untouched();
  expect_named("its first bytes are not those of a rank");
}

TEST_F(Strangers, CannotMakeItBufferALargeToken) {
  Bytes greeting = greeting_of(kBoxOfRank1, kToken);
  greeting[offsetof(Greeting, token_bytes) + 3] = 0x10;  // 256 MiB
  const Peer stranger(router);
  stranger.say(greeting);
  EXPECT_TRUE(stranger.is_closed());
  expect_untouched();
  expect_named("its first bytes are not those of a rank");
}

TEST_F(Strangers, ARankThatSendsALargeMessageIsTurnedAway) {
  const Peer rank(router);
  rank.say(greeting_of(kBoxOfRank1, kToken));
  rank.say({0, 0, 0, 0x20});  // 512 MiB
  EXPECT_TRUE(rank.is_closed());
  expect_untouched();
}

TEST_F(Strangers, WithAnotherTokenAreTurnedAway) {
  std::string almost = kToken;
  almost.back() = '0';
  for (const std::string& token : {almost, std::string(kToken.size(), '0')}) {
    const Peer stranger(router);
    stranger.say(greeting_of(kBoxOfRank1, token));
    EXPECT_TRUE(stranger.is_closed());
  }
  for (const std::string& token : {std::string(), kToken.substr(1), kToken + "0"}) {
    const Peer stranger(router);
    stranger.say(greeting_of({}, token));
    EXPECT_TRUE(stranger.is_closed());
  }
  expect_untouched();
  expect_named("it has another token");
}

TEST_F(Strangers, ThatSayNothingOrHalfAFrameAreClosedAfterAWhile) {
  const auto start = std::chrono::steady_clock::now();
  std::list<Peer> peers;
  const Bytes greeting = greeting_of(kBoxOfRank1, kToken);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, sizeof(Greeting), greeting.size() - 1}) {
    Bytes begun = greeting;
    begun.resize(size);
    peers.emplace_back(router).say(begun);
  }
  for (const Peer& peer : peers) EXPECT_TRUE(peer.is_closed());
  EXPECT_GE(std::chrono::steady_clock::now() - start, kPatience);
  expect_untouched();
  expect_named("it has not introduced itself within 1000 ms");
}

TEST_F(Strangers, HoldUpNoRank) {
  const Peer silent(router);
  const Peer half(router);
  half.say({1, 2, 3});
  expect_untouched();
}

TEST_F(Strangers, ARankMaySayItsHelloByteByByteAndWaitAfterwards) {
  Peer rank(router);
  for (const std::uint8_t byte : greeting_of({Box::Of::control, 1}, kToken)) rank.say({byte});
  const Peer silent(router);  // comes later, and is closed for its silence
  EXPECT_TRUE(silent.is_closed());
  router.push({Box::Of::control, 1}, bytes_of("still here"));
  EXPECT_EQ(rank.next(), "still here");
}

// Lets a rank connect while this process may open no further file descriptor.
[[noreturn]] void accept_without_descriptors() {
  const MessageRouter router(listen_at("127.0.0.1", 0, true), kToken);
  const int rank = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const rlimit none{static_cast<rlim_t>(rank) + 1, static_cast<rlim_t>(rank) + 1};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(router.port()));
  if (setrlimit(RLIMIT_NOFILE, &none) != 0) std::abort();
  if (connect(rank, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) std::abort();
  for (;;) pause();  // the router's thread ends the process
}

TEST(MessageRouter, SaysThatItHasNoDescriptorLeftForARank) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(accept_without_descriptors(), testing::ExitedWithCode(1), "no file descriptor left.*ulimit -n");
}

}  // namespace
}  // namespace cp_pool
