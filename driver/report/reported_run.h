// Keeps a run while it goes on, for the reports that are made of it at its end.
#pragma once

#include "driver/log/run_report.h"
#include "driver/report/notices.h"

namespace cp_pool {

class ReportedRun : public EventSink {
 public:
  explicit ReportedRun(PhaseTimes phases = PhaseTimes::of_each_rank);
  void on_event(const Event& event) override;

  [[nodiscard]] const RunReport& report() const { return report_; }

 private:
  void add_notice(std::string text);

  RunReport report_;
  Notices notices_;
};

}  // namespace cp_pool
