#include "driver/service/socket.h"

#include <memory>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "cases/testing/temporary_folder.h"
#include "driver/testing/scoped_variable.h"

namespace cp_pool::service {
namespace {

namespace fs = std::filesystem;
using test::ScopedVariable;
using test::TemporaryFolder;
using test::write_file;
using namespace ::testing;

unsigned mode_of(const fs::path& path) {
  struct stat status{};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777U;
}

// A socket path in a folder that does not exist yet.
class Socket : public ::testing::Test {
 protected:
  TemporaryFolder folder;
  const fs::path path = folder / "cp-pool" / "default.sock";
};

// --- Names and places ---

TEST(SocketName, IsMadeOfLettersDigitsAndThreeMarks) {
  for (const char* name : {"default", "nightly-2", "a_b.c", "X"}) EXPECT_THAT(wrong_with_name(name), IsEmpty()) << name;
  EXPECT_THAT(wrong_with_name(std::string(64, 'a')), IsEmpty());
}

TEST(SocketName, ThatLeavesTheFolderIsRefusedAndQuoted) {
  for (const char* name : {"../x", "a/b", ".hidden", "a b", "ä"}) {
    EXPECT_THAT(wrong_with_name(name), HasSubstr(fmt::format("'{}'", name)));
  }
  EXPECT_THAT(wrong_with_name(""), HasSubstr("1 to 64"));
  EXPECT_THAT(wrong_with_name(std::string(65, 'a')), HasSubstr("1 to 64"));
}

TEST(SocketPath, IsInTheRuntimeFolderOfTheUserIfThereIsOne) {
  const ScopedVariable runtime{"XDG_RUNTIME_DIR", "/run/user/7"};
  EXPECT_EQ(socket_path("nightly"), "/run/user/7/cp-pool/nightly.sock");
}

TEST(SocketPath, IsInAFolderOfTheUsersOtherwise) {
  const std::string expected = fmt::format("/tmp/cp-pool-{}/x.sock", ::geteuid());
  for (const char* runtime : {static_cast<const char*>(nullptr), "", "relative/folder"}) {
    const ScopedVariable variable{"XDG_RUNTIME_DIR", runtime};
    EXPECT_EQ(socket_path("x"), expected);
  }
}

// --- Listening ---

TEST_F(Socket, IsForItsUserAlone) {
  const mode_t before = ::umask(0);
  {
    const ListeningService service(path);
    EXPECT_EQ(mode_of(path.parent_path()), 0700U);
    EXPECT_EQ(mode_of(path), 0600U);
  }
  EXPECT_EQ(::umask(before), 0U) << "the umask is another one now";
}

TEST_F(Socket, AFolderThatOthersMayEnterIsClosedToThem) {
  fs::create_directory(path.parent_path());
  fs::permissions(path.parent_path(), fs::perms(0755));
  const ListeningService service(path);
  EXPECT_EQ(mode_of(path.parent_path()), 0700U);
}

TEST_F(Socket, LetsItsUserInAndTellsWhoThatIs) {
  const ListeningService service(path);
  const UniqueFd client = connect_to(path);
  ASSERT_TRUE(client);
  const UniqueFd accepted{::accept(service.fd(), nullptr, nullptr)};
  for (const int end : {client.get(), accepted.get()}) {
    const auto peer = peer_of(end);
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->pid, ::getpid());
    EXPECT_EQ(peer->uid, ::geteuid());
  }
}

TEST_F(Socket, IsGoneWhenItsServiceIs) {
  {
    const ListeningService service(path);
  }
  EXPECT_TRUE(fs::is_empty(path.parent_path()));
  EXPECT_FALSE(connect_to(path));
  const ListeningService again(path);
  EXPECT_TRUE(connect_to(path));
}

TEST_F(Socket, ThatIsNotThereIsNoError) {
  EXPECT_FALSE(connect_to(path));
  EXPECT_FALSE(connect_to(folder / "no" / "such" / "folder.sock"));
}

TEST_F(Socket, OfALivingServiceIsAnErrorThatNamesItsProcess) {
  const ListeningService service(path);
  EXPECT_THAT([&] { const ListeningService second(path); },
              ThrowsMessage<SocketError>(AllOf(StartsWith(path.string() + ": "), HasSubstr("is there already"),
                                               HasSubstr(fmt::format("process {}", ::getpid())))));
  EXPECT_TRUE(connect_to(path)) << "the attempt has taken the living one's socket away";
}

// Kills a process with a service, which therefore removes nothing.
void kill_a_service_of(const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) {
    const ListeningService* const service = new ListeningService(path);  // lives until the process is killed
    ::kill(::getpid(), service == nullptr ? SIGTERM : SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::is_socket(path));
}

TEST_F(Socket, OfAServiceThatWasKilledIsRemovedByTheNextOfAnyName) {
  const fs::path living = path.parent_path() / "living.sock";
  const fs::path of_shell = path.parent_path() / "shell-123.sock";
  const fs::path of_systemd = path.parent_path() / "systemd.sock";
  const ListeningService service(living);
  for (const fs::path& killed : {of_shell, of_systemd}) kill_a_service_of(killed);
  // Puts the lock file of a dead service beside a socket that somebody listens on without a lock.
  fs::rename(of_systemd.string() + ".lock", folder / "lock");
  auto taken = std::make_unique<ListeningService>(of_systemd);
  const UniqueFd listening{::dup(taken->fd())};
  fs::rename(of_systemd, folder / "socket");
  taken.reset();
  fs::rename(folder / "socket", of_systemd);
  fs::rename(folder / "lock", of_systemd.string() + ".lock");

  const ListeningService next(path);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator{path.parent_path()}) left.push_back(entry.path().filename());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("default.sock", "default.sock.lock", "living.sock",
                                                    "living.sock.lock", "systemd.sock"));
  EXPECT_TRUE(connect_to(living));
}

TEST_F(Socket, OfAServiceThatWasKilledIsReplaced) {
  kill_a_service_of(path);
  EXPECT_FALSE(connect_to(path));
  const ListeningService service(path);
  EXPECT_TRUE(connect_to(path));
}

// A process that does not lock the name, like a service of another version.
TEST_F(Socket, OfALivingProcessWithoutALockIsAnErrorToo) {
  UniqueFd other;
  {
    const ListeningService service(path);
    other.reset(::dup(service.fd()));
    fs::rename(path, folder / "kept.sock");
  }
  fs::rename(folder / "kept.sock", path);
  EXPECT_THAT([&] { const ListeningService second(path); },
              ThrowsMessage<SocketError>(HasSubstr(fmt::format("is there already: process {}", ::getpid()))));
}

TEST_F(Socket, WithALongerPathThanAddressesHoldIsAnErrorWithBothNumbers) {
  const fs::path too_long = folder / std::string(120, 'x') / "default.sock";
  const auto names_both =
      ThrowsMessage<SocketError>(AllOf(StartsWith(too_long.string()), HasSubstr("at most 107 bytes"),
                                       HasSubstr(std::to_string(too_long.string().size()))));
  EXPECT_THAT([&] { const ListeningService service(too_long); }, names_both);
  EXPECT_THAT([&] { connect_to(too_long); }, names_both);
}

TEST_F(Socket, InWhatIsNoFolderIsAnErrorThatNamesIt) {
  write_file(path.parent_path(), "a file");
  EXPECT_THAT([&] { const ListeningService service(path); },
              ThrowsMessage<SocketError>(AllOf(StartsWith(path.parent_path().string()), HasSubstr("no folder"))));
}

// Somebody else could let the link lead anywhere.
TEST_F(Socket, InALinkToAFolderIsAnError) {
  fs::create_directory(folder / "real");
  fs::create_directory_symlink(folder / "real", path.parent_path());
  EXPECT_THAT([&] { const ListeningService service(path); }, ThrowsMessage<SocketError>(HasSubstr("no folder")));
  EXPECT_TRUE(fs::is_empty(folder / "real"));
}

TEST_F(Socket, InAFolderOfAnotherUserIsAnErrorThatNamesTheUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  fs::create_directory(path.parent_path());
  ASSERT_EQ(::chown(path.parent_path().c_str(), 12345, 12345), 0);
  EXPECT_THAT([&] { const ListeningService service(path); },
              ThrowsMessage<SocketError>(AllOf(StartsWith(path.parent_path().string()), HasSubstr("user 12345"))));
}

TEST_F(Socket, OfAnotherUserIsNotSpokenTo) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  fs::permissions(folder.path(), fs::perms(0777));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(12345) != 0) ::_exit(1);
    const ListeningService service(path);
    (void)!::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1) << "the other user's service has not begun";
  ::close(ends[0]);
  EXPECT_THAT([&] { connect_to(path); },
              ThrowsMessage<SocketError>(HasSubstr(fmt::format("that of user 12345, process {}", child))));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// --- systemd ---

TEST(SocketOfSystemd, IsForTheProcessThatIsNamedAlone) {
  const ScopedVariable count{"LISTEN_FDS", "1"};
  for (const char* pid : {static_cast<const char*>(nullptr), "1", ""}) {
    const ScopedVariable variable{"LISTEN_PID", pid};
    EXPECT_FALSE(socket_of_systemd());
  }
}

TEST(SocketOfSystemd, MoreThanOneIsAnError) {
  const ScopedVariable pid{"LISTEN_PID", std::to_string(::getpid()).c_str()};
  const ScopedVariable count{"LISTEN_FDS", "2"};
  EXPECT_THAT([] { socket_of_systemd(); }, ThrowsMessage<SocketError>(HasSubstr("LISTEN_FDS is 2")));
}

}  // namespace
}  // namespace cp_pool::service
