#include "driver/ranks/fork_server.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "driver/core/adapter_outlook.h"
#include "driver/core/rank_environment.h"
#include "driver/os/spawn.h"
#include "worker/protocol/environment.h"
#include "worker/protocol/json_fields.h"
#include "worker/protocol/text_clean.h"

namespace cp_pool {

namespace {

constexpr std::size_t kMostWords = 400;
constexpr std::size_t kMostStderr = 4096;
constexpr std::size_t kMostMessageBytes = 65536;  // of a message of the server
constexpr std::chrono::milliseconds kGone{1000};  // from SIGKILL until it is gone
constexpr int kMaxSweeps = 20;                    // passes over the processes that it left
constexpr std::size_t kMostDescriptors = 4;

// Sends an order as one datagram, with the descriptors that it has. Throws std::system_error.
void send_order(int socket, const SpawnRequest& order) {
  nlohmann::json message{
      {"argv", order.argv}, {"env", nlohmann::json::object()}, {"descriptors", nlohmann::json::array()}};
  for (const auto& [name, value] : order.env) message["env"][name] = value;
  std::array<int, kMostDescriptors> fds{};
  std::size_t count = 0;
  for (const auto& [name, fd] : {std::pair{"stdin", order.stdin_fd},
                                 {"stdout", order.stdout_fd},
                                 {"stderr", order.stderr_fd},
                                 {"master", order.inherited_fd}}) {
    if (fd < 0) continue;
    message["descriptors"].push_back(name);
    fds.at(count++) = fd;
  }
  std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (count > 0) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(rights), fds.data(), count * sizeof(int));
  }
  // Does not block: only one order is sent at a time, and the socket has room for it.
  if (::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    throw std::system_error(errno, std::generic_category(), "sendmsg");
  }
}

}  // namespace

ForkServer::ForkServer(PoolHost& host, Config config)
    : host_(host),
      config_(std::move(config)),
      tag_(random_tag()),
      processes_(tag_),
      socket_(host.io),
      answer_timer_(host.io) {}

void ForkServer::start() {
  if (!is(State::unused)) return;
  facts_.state = State::starting;
  started_ = Clock::now();
  try {
    spawn();
    listen();
    limit_answer(config_.run->start_timeout, fmt::format("the fork server was not ready within {} ms (--start-timeout)",
                                                         config_.run->start_timeout.count()));
  } catch (const SpawnError&) {
    facts_.state = State::useless;  // the ranks are started with the same interpreter and report the error
  } catch (const std::system_error& error) {
    become_useless(error.what());
  }
}

// Without memory for the file the adapter is asked nothing.
void ForkServer::write_cases() {
  if (!config_.cases) return;
  const std::vector<std::string> cases = config_.cases();
  if (cases.empty()) return;
  const std::string text = fmt::format("{}\n", fmt::join(cases, "\n"));
  UniqueFd file{::memfd_create("cases", MFD_CLOEXEC)};
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return;
  cases_ = std::move(file);
  asked_ = cases.size();
  answers_begin_ = text.size();
}

void ForkServer::report_skips() {
  if (!cases_) return;
  struct stat now{};
  if (::fstat(cases_.get(), &now) != 0) return;
  std::string answers(static_cast<std::size_t>(now.st_size) - answers_begin_, '\0');
  const ssize_t size = ::pread(cases_.get(), answers.data(), answers.size(), static_cast<off_t>(answers_begin_));
  if (size != static_cast<ssize_t>(answers.size())) return;
  std::vector<std::string> reasons;
  for (AdapterOutlook& outlook : parse_outlooks(answers)) reasons.push_back(std::move(outlook.skip));
  if (reasons.size() != asked_) return;
  cases_ = {};
  config_.skips(reasons);
}

void ForkServer::spawn() {
  write_cases();
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) < 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  UniqueFd ours{sockets[0]};
  const UniqueFd theirs{sockets[1]};
  Pipe err = make_pipe();
  std::vector<std::pair<std::string, std::string>> variables{
      {protocol::kEnvTag, tag_},
      {protocol::kEnvDevice, config_.run->device},
      {kEnvStartTimeout, std::to_string(config_.run->start_timeout.count())}};
  const ProcessEnvironment* const process = config_.run->process ? &*config_.run->process : nullptr;
  add_wait_policy(variables, process);
  SpawnRequest request{.argv = config_.run->fork_server,
                       .env = std::move(variables),
                       .stdin_fd = cases_.get(),
                       .stdout_fd = err.write.get(),
                       .stderr_fd = err.write.get(),
                       .inherited_fd = theirs.get(),
                       .process = process};
  request.argv.insert(request.argv.end(),
                      {"--socket", std::to_string(theirs.get()), "--driver", std::to_string(::getpid())});
  pid_ = cp_pool::spawn(request).pid;
  host_.ranks.insert(pid_);
  socket_.assign(ours.release());
  const auto keep = [this](std::string_view bytes) {
    facts_.last_words += bytes;
    if (facts_.last_words.size() > kMostStderr) facts_.last_words.erase(0, facts_.last_words.size() - kMostStderr);
  };
  stderr_ = std::make_shared<PipeReader>(host_.io, std::move(err.read), keep, [](std::error_code) {});
  stderr_->start();
}

void ForkServer::listen() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr<bool>(alive_)](asio::error_code error) {
                       if (error || alive.expired()) return;
                       read_messages();
                     });
}

void ForkServer::read_messages() {
  std::string text(kMostMessageBytes, '\0');
  for (;;) {
    const ssize_t size = TEMP_FAILURE_RETRY(::recv(socket_.native_handle(), text.data(), text.size(), MSG_DONTWAIT));
    if (size < 0 && errno == EAGAIN) return listen();
    if (size <= 0) return become_useless(describe_end());
    take(text.substr(0, static_cast<std::size_t>(size)));
    if (is(State::useless)) return;
  }
}

void ForkServer::take(const std::string& text) {
  try {
    const nlohmann::json message = protocol::parse_foreign_json(text);
    const std::string event = message.at("event").get<std::string>();
    if (event == "forked") return accept_pid(message);
    if (event == "broken") return refuse_ranks(message.at("reason").get<std::string>());
    if (event == "asked") return report_skips();
    if (event == "importing") return limit_answer(config_.run->start_timeout, "");
    report_skips();
    if (event != "ready") return become_useless(message.value("reason", "it gave no reason"));
    if (is(State::starting)) answer_timer_.cancel();
    facts_.state = State::ready;
    config_.tell({.ready = true,
                  .pid = pid_,
                  .start_ms = in_ms(Clock::now() - started_),
                  .reason = protocol::cut_text(message.value("reason", ""), kMostWords)});
    config_.on_change();
    send_next();
  } catch (const std::exception& error) {  // bad JSON or a missing field
    become_useless(
        fmt::format("the fork server sent a line that is not a message: {}", protocol::clean_text(error.what())));
  }
}

void ForkServer::accept_pid(const nlohmann::json& message) {
  const auto pid = message.at("pid").get<pid_t>();
  if (host_.forking.erase(this) == 0 || pid <= 0)
    return become_useless("the fork server answered what nobody had asked");
  Pending pending = std::move(queue_.front());
  queue_.pop_front();
  answer_timer_.cancel();
  pending.done(pid);
  send_next();
}

void ForkServer::fork(SpawnRequest order, Done done) {
  if (is(State::useless)) return done(std::nullopt);
  queue_.push_back({std::move(order), std::move(done)});
  send_next();
}

void ForkServer::send_next() {
  if (!is(State::ready) || host_.forking.contains(this) || queue_.empty()) return;
  try {
    send_order(socket_.native_handle(), queue_.front().order);
  } catch (const std::system_error& error) {
    return become_useless(fmt::format("the fork server takes no order: {}", error.code().message()));
  }
  host_.forking.insert(this);
  limit_answer(config_.run->fork_patience, "");
}

// Gives the server up if its next answer takes longer. no_rank_starts: why no rank can start then, forked or not; empty
// if ranks can be started one by one.
void ForkServer::limit_answer(std::chrono::milliseconds limit, const std::string& no_rank_starts) {
  answer_timer_.set(limit, [this, limit, no_rank_starts] {
    if (!no_rank_starts.empty()) return refuse_ranks(no_rank_starts);
    become_useless(fmt::format("the fork server gave no answer within {} ms", limit.count()));
  });
}

void ForkServer::refuse_ranks(const std::string& reason) {
  facts_.no_rank_starts = protocol::cut_text(reason, kMostWords);
  become_useless(reason);
}

void ForkServer::become_useless(const std::string& reason) {
  if (is(State::useless)) return;
  facts_.state = State::useless;
  const ForkServerTold told{.ready = false,
                            .pid = pid_,
                            .start_ms = in_ms(Clock::now() - started_),
                            .reason = protocol::cut_text(reason, kMostWords)};
  if (stderr_) facts_.last_words += stderr_->take_available();
  end_process();
  if (facts_.no_rank_starts.empty()) config_.tell(told);
  std::deque<Pending> left = std::move(queue_);
  queue_.clear();
  for (Pending& pending : left) pending.done(std::nullopt);
  config_.on_change();
}

// Describes the end of the server, after the server's side of the socket was closed.
std::string ForkServer::describe_end() const {
  std::optional<ExitStatus> exit;
  // The sockets of a process that ends close a moment before its exit can be seen.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (!(exit = peek_exit(pid_)) && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string text = fmt::format("the fork server ended ({})", exit ? describe(*exit) : "it closed its socket");
  std::string words = facts_.last_words;
  if (stderr_) words += stderr_->take_available();
  words = protocol::last_line(protocol::clean_text(words));
  if (!words.empty()) text += fmt::format("; its last words: {}", words);
  return text;
}

void ForkServer::end_process() {
  host_.forking.erase(this);
  answer_timer_.cancel();
  asio::error_code ignored;
  if (socket_.is_open()) socket_.close(ignored);
  if (stderr_) stderr_->close();
  if (pid_ < 0) return;
  // A rank that is just being forked still has the server's tag, or is its child.
  for (int pass = 0; pass < kMaxSweeps && processes_.kill_all() > 0; ++pass) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(pid_, SIGKILL);
  reap_until(std::chrono::steady_clock::now() + kGone, pid_);
  host_.ranks.erase(pid_);
  pid_ = -1;
  host_.reap_strangers();
}

void ForkServer::close() {
  alive_.reset();
  facts_.state = State::useless;
  end_process();
  queue_.clear();
}

}  // namespace cp_pool
