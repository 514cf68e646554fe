#include "driver/service/line_connection.h"

namespace cp_pool::service {

LineConnection::LineConnection(asio::io_context& io, UniqueFd in, UniqueFd out, Functions functions)
    : functions_(std::move(functions)),
      reader_(std::make_shared<PipeReader>(
          io, std::move(in), [this](std::string_view bytes) { on_data(bytes); },
          [this](std::error_code) {
            ended_ = true;
            on_data("\n");  // the last line may lack its newline
          })),
      writer_(std::make_shared<PipeWriter>(io, std::move(out), [this] {
        if (!writer_->broken()) {
          functions_.on_written();
        } else if (!std::exchange(lost_, true)) {
          functions_.on_lost();
        }
      })) {}

void LineConnection::start(std::string_view already_read) {
  if (!already_read.empty()) on_data(already_read);
  reader_->start();
  writer_->start();
}

void LineConnection::pause() {
  paused_ = true;
  reader_->pause();
}

void LineConnection::resume() {
  if (!std::exchange(paused_, false)) return;
  deliver_lines();
  if (!paused_ && !ended_) reader_->resume();
}

void LineConnection::on_data(std::string_view bytes) {
  for (protocol::Line& line : framer_.feed(bytes)) lines_.push_back(std::move(line));
  deliver_lines();
}

void LineConnection::deliver_lines() {
  while (!paused_ && !lines_.empty()) {
    const protocol::Line line = std::move(lines_.front());
    lines_.pop_front();
    functions_.on_line(line);
  }
  if (ended_ && lines_.empty() && !paused_ && !std::exchange(told_end_, true)) functions_.on_end();
}

void LineConnection::close() {
  reader_->close();
  writer_->close();
}

}  // namespace cp_pool::service
