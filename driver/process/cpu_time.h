// CPU time of this process.
#pragma once

namespace cp_pool {

// User and system time of this process, without its children, in ms.
double own_cpu_ms();

}  // namespace cp_pool
