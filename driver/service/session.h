// The connection of a client: reads its requests, keeps its runs, writes the replies.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <sys/types.h>

#include <asio/io_context.hpp>

#include "cases/unique_fd.h"
#include "driver/core/clock.h"
#include "driver/service/line_connection.h"
#include "driver/service/messages.h"
#include "driver/service/service_run.h"

namespace cp_pool::service {

class Service;

class Session {
 public:
  // pid: process ID of the client; 0: unknown.
  Session(asio::io_context& io, Service& service, UniqueFd in, UniqueFd out, pid_t pid);
  ~Session();

  void start() { connection_.start(); }
  // Called when the service stops: the runs end, and then the session.
  void drain(const std::string& why);
  void cancel_all(bool kill) {
    for (const auto& [name, run] : runs_) run->cancel(kill);
  }
  // Tells the client why, and ends the session.
  void refuse(const std::string& why);

  [[nodiscard]] ClientStatus status() const;
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::map<std::string, std::unique_ptr<ServiceRun>>& runs() const { return runs_; }

 private:
  void on_line(const protocol::Line& line);
  void take(const Hello& hello);
  void take(const Open& open);
  void take(const Submit& submit);
  void take(const Close& close);
  void take(const Cancel& cancel);
  void take(const AskStatus& ask);
  void take(const Stop& stop);
  ServiceRun* find_run(const std::string& name);
  void tell(const std::string& run, const Event& event);
  void end_run(ServiceRun& run);
  void say(const Reply& reply);
  void reconsider_pace();
  void on_end();
  void on_lost();
  void end_if_done() {
    if (ended_ && runs_.empty()) end_soon();
  }
  void end_soon();
  void leave_after_writing();

  asio::io_context& io_;
  Service& service_;
  pid_t pid_;
  std::string client_;
  Clock::time_point since_ = Clock::now();
  std::map<std::string, std::unique_ptr<ServiceRun>> runs_;  // by name
  std::size_t finished_ = 0;                                 // finished cases of runs that have ended
  bool greeted_ = false;
  bool held_ = false;           // the client has too much unread, so its cases are held
  bool ended_ = false;          // no more requests can come
  bool waits_for_end_ = false;  // the client has sent stop, and the connection shows it the end of the service
  bool lost_ = false;
  bool over_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  LineConnection connection_;
};

}  // namespace cp_pool::service
