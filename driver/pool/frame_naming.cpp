#include "driver/pool/frame_naming.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "driver/os/helper_process.h"
#include "driver/ranks/pipes.h"
#include "worker/protocol/frame_names.h"

namespace cp_pool {

namespace {

// Run by the helper process: writes "INDEX\tCALL\tCALL..\n" for each frame that it has found.
void write_names(const std::vector<FrameAddress>& frames, int output) {
  look_up_frames(frames, [&](const FrameAddress& frame, const std::vector<std::string>& calls) {
    std::string line = fmt::format("{}", std::ranges::find(frames, frame) - frames.begin());
    for (const std::string& call : calls) line += '\t' + call;
    line += '\n';
    [[maybe_unused]] const ssize_t written = ::write(output, line.data(), line.size());
  });
}

FrameNames read_names(const std::vector<FrameAddress>& frames, std::string_view text) {
  FrameNames names;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    std::size_t index = frames.size();
    std::from_chars(line.data(), line.data() + line.size(), index);
    if (index >= frames.size()) continue;
    for (std::size_t tab = line.find('\t'); tab != std::string_view::npos; tab = line.find('\t')) {
      line.remove_prefix(tab + 1);
      names[frames[index]].emplace_back(line.substr(0, line.find('\t')));
    }
  }
  return names;
}

}  // namespace

asio::awaitable<void> name_frames(RunContext& run, Wakeup& wakeup, std::vector<StderrTail>& tails) {
  std::string texts;
  for (const StderrTail& tail : tails) texts += tail.text;
  const std::vector<FrameAddress> frames = raw_frames(texts);
  if (frames.empty()) co_return;
  std::unique_ptr<ForkedHelper> helper;
  try {
    helper = std::make_unique<ForkedHelper>([&](int output) { write_names(frames, output); });
  } catch (const std::system_error&) {  // too many processes: the stacks go without names
    co_return;
  }
  run.host.ranks.insert(helper->pid());
  std::string answer;
  bool complete = false;
  const auto reader =
      std::make_shared<PipeReader>(run.host.io, helper->take_output(),
                                   PipeReader::Functions{[&](std::string_view bytes) { answer += bytes; },
                                                         [&](std::error_code) {
                                                           complete = true;
                                                           wakeup.notify();
                                                         }});
  reader->start();
  const auto limit = Clock::now() + kNamingLimit;
  while (!complete && !run.stop.kill_at_once && Clock::now() < limit) co_await wakeup.wait_until(limit);
  reader->close();
  const pid_t pid = helper->pid();
  helper.reset();
  run.host.ranks.erase(pid);
  const FrameNames names = read_names(frames, answer);
  for (StderrTail& tail : tails) tail.text = with_names(tail.text, names);
}

}  // namespace cp_pool
