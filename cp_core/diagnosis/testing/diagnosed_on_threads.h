// Cases judged and diagnosed on ranks that are threads of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cases/case.h"
#include "cases/diagnosis.h"
#include "cp_core/trial/implementation.h"

namespace cp_pool::diagnosis::test {

struct Diagnosed {
  bool failed = false;  // the case, on some rank
  std::string reason;   // of the first rank that failed
  Diagnosis diagnosis;  // of a case that failed
};

// Each rank has an implementation of its own.
Diagnosed diagnosed_on_threads(const Case& c, const std::function<std::unique_ptr<Implementation>()>& make);

// Of our own implementation.
Diagnosed diagnosed(const Case& c);

// What a diagnosis says, on one line and with its evidence below it.
std::string text_of(const Diagnosis& diagnosis);

}  // namespace cp_pool::diagnosis::test
