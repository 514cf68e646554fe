// The part that commands which run cases share: it opens outputs before the first case, attaches views, and computes
// the exit code at the end.
#pragma once

#include <memory>

#include "driver/cli/execution_options.h"
#include "driver/cli/status_requests.h"
#include "driver/report/notices.h"
#include "driver/report/output_file.h"
#include "driver/report/terminal_sink.h"

namespace cp_pool {

// A view that is a function of each event.
class Listener : public EventSink {
 public:
  explicit Listener(std::function<void(const Event&)> hear) : hear_{std::move(hear)} {}
  void on_event(const Event& event) override { hear_(event); }

 private:
  std::function<void(const Event&)> hear_;
};

// Passes one stream of events to several views. A view that cannot write any more is dropped and reported. The other
// views and the run go on, unless the reader of the last output is gone.
class SinkList : public EventSink {
 public:
  // `on_error` is called once for each view that is dropped, with a line that says why.
  explicit SinkList(std::function<void(const std::string&)> on_error) : on_error_{std::move(on_error)} {}

  // Adds a view that writes an output. It is not owned and must outlive this object. Views get events in the order in
  // which they were added.
  void add(EventSink& sink) { views_.push_back({.sink = &sink, .writes = true}); }
  // Adds a view that writes no output.
  void add_listener(EventSink& sink) { views_.push_back({.sink = &sink, .writes = false}); }
  // Says that the run has outputs beside its views, such as folders, which need no reader.
  void expect_other_outputs() { other_outputs_ = true; }

  // Both throw ReaderGone if a view was dropped because its reader is gone and no output is left: nobody would see the
  // rest of the run.
  void on_event(const Event& event) override {
    deliver([&](EventSink& sink) { sink.on_event(event); });
  }
  void on_tick() override {
    deliver([](EventSink& sink) { sink.on_tick(); });
  }

  [[nodiscard]] bool failed() const { return failed_; }  // whether a view was dropped

 private:
  struct View {
    EventSink* sink;
    bool writes;
  };

  void deliver(const std::function<void(EventSink&)>& what);

  std::vector<View> views_;
  std::function<void(const std::string&)> on_error_;
  bool other_outputs_ = false;
  bool failed_ = false;
  bool reader_gone_ = false;
};

class Execution {
 public:
  enum class Show {
    terminal,              // the terminal view on stdout
    terminal_with_checks,  // with a table of every check of each case
    result_lines,          // one JSON object a case on stdout, and nothing else there
  };

  // Opens every output. `free_stdin` says that nothing else in this process reads stdin. Throws OutputError.
  Execution(const ExecutionOptions& options, Show show, bool free_stdin = false);

  // Lets a function that writes no output hear every event.
  void listen(std::function<void(const Event&)> hear);

  // Runs and returns the exit code. Ends early if nobody is left to read the outputs. `run` gets the configuration,
  // with the worker filled in, and the sink of all views.
  int operator()(const std::function<RunResult(const RunConfig&, EventSink&)>& run);

  // To be called during the run: print a message of this kind ("error", "warning") on stderr, and the line of an answer
  // on stdout.
  void tell(std::string_view kind, const std::string& message);
  void print_answer(const std::string& line);

 private:
  RunConfig config_;
  std::vector<std::unique_ptr<FolderLock>> locks_;
  std::unique_ptr<TerminalSink> terminal_;
  SinkList views_;
  std::unique_ptr<Notices> notices_;
  std::optional<RunReport> report_;  // if there are reports of the run
  std::optional<StatusRequests> status_requests_;
  std::vector<std::unique_ptr<EventSink>> owned_;
  bool answer_lost_ = false;
};

// Refuses a fault of CP_POOL_INJECT that would never happen, since none of the cases that it names has its rank. Leaves
// a fault that it cannot read to the worker. Throws CommandError (usage).
void expect_injected_ranks(const std::vector<Item>& cases);

}  // namespace cp_pool
