// Sets an environment variable for the duration of a scope, for tests.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace cp_pool::test {

class ScopedVariable {
 public:
  // value: null unsets it.
  ScopedVariable(const char* name, const char* value) : name_{name} {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { set(old_ ? old_->c_str() : nullptr); }

 private:
  void set(const char* value) {
    if (value != nullptr) {
      ::setenv(name_, value, 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace cp_pool::test
