// Judges and diagnoses cases on ranks that are threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cases/case.h"
#include "cases/diagnosis.h"
#include "cp_core/diagnosis/diagnose.h"
#include "cp_core/run_case/implementation.h"

namespace cp_pool::diagnosis::test {

struct Diagnosed {
  bool failed = false;  // the case failed on some rank
  std::string reason;   // why it failed on the first such rank
  Diagnosis diagnosis;  // empty unless the case failed
};

// Runs `make` once on each rank. before: is called on each rank before the diagnosis, and may change what is known of
// the case.
Diagnosed diagnosed_on_threads(const Case& c, const std::function<std::unique_ptr<Implementation>()>& make,
                               const Settings& settings = {}, const std::function<void(JudgedCase&)>& before = {});

// The same for our own implementation.
Diagnosed diagnosed(const Case& c, const Settings& settings = {});

// Returns the diagnosis on one line, with its evidence below it.
std::string text_of(const Diagnosis& diagnosis);

}  // namespace cp_pool::diagnosis::test
