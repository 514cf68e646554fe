// Stack traces for people.
#pragma once

#include <string>
#include <string_view>

namespace cp_pool {

// Lines as glibc's backtrace_symbols writes them, "/path/program(_ZN3fooEv+0x12)[0x55..]", become "foo (program)",
// without the parameters; "/path/program(+0x12)[0x55..]" becomes "program +0x12". Other lines stay as they are.
std::string readable_stack(std::string_view text);

}  // namespace cp_pool
