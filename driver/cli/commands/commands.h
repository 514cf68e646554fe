// The commands of cp-pool. Each gives the exit code; throws CommandError.
#pragma once

#include <string>

#include "driver/cli/options.h"

namespace cp_pool {

// program: as it was called (argv[0]), for the commands that rerun a case.
int run_command(const RunOptions& options, const std::string& program);
int submit_command(const SubmitOptions& options, const std::string& program);
int list_command(const ListOptions& options);
int report_command(const ReportOptions& options);
int explain_command(const ExplainOptions& options);
int doctor_command(const DoctorOptions& options);
int conformance_command(const ConformanceOptions& options);

}  // namespace cp_pool
